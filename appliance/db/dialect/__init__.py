"""SQLite's own words in SQL, each behind a name for what is meant by it.

Whatever standard SQL says as well is written in the statement as it is. The rest is asked for here: what looks into a
document of JSON (`documents`), what compares and cuts texts and numbers (`texts`), which way to go (`hints`), what the
database says of itself (`catalogue`). A function answers a piece of SQL, so a statement is put together once, where its
module is read, and costs nothing when it runs.

Whoever brings the product to another database writes these modules anew, and those that are bound to a file by what
they do: the schema (`db`, `tables`), the search index of contacts (`contacts.search`), the indexes on custom data
(`segments.indexes`), the staging file of an import (`importing.staging`, `importing.plain`) and the copying of the file
(`backups.take`, `backups.restore`). A rule of the suite finds such a word in any other module.
"""
