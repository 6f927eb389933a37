"""SQLite's own words in SQL, each behind a name for what is meant by it.

Whatever standard SQL says as well is written in the statement as it is. The rest is asked for here: what looks into
documents of JSON (`documents`), what compares and cuts texts and numbers (`texts`), which way to go (`hints`), what the
database says of itself (`catalogue`). The functions answer pieces of SQL; statements that are sent often are put
together once, where their module is read.

Whoever brings the product to another database writes these modules anew, and those that are bound to SQLite by what
they do: the rest of `db` and the schema (`tables`), the search index of contacts (`contacts.search`), the indexes on
custom data (`segments.indexes`), the staging file of an import (`importing.staging`, `importing.bulk_insert`) and the
copying of the file (`backups.take`). The function `folded` that statements call is registered by `filters.fold`.

What no word tells it cannot hold: that what is true is a number (`WHERE enabled`), that `LIKE` does not mind upper and
lower case, and how parameters are marked (`?`, `?1`, `:name`). All other statements go through `rows`, `one`, `scalar`
and `run` of `db.open` or the connection there, which is where the marks can be written anew.
"""
