"""Write the generated files of the clients from the OpenAPI document: `python -m clients.generator`.

`model` reads the document; `python_files` and `typescript_files` write the files of each language. What is generated
names itself so in its first line; all other files of the clients are written by hand.
"""
