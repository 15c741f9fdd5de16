"""Finding out what is wrong with a node, and what to do: named checks that change nothing.

Of each group of checks one module decides, as functions from gathered facts to findings; the modules that begin with
`look_` gather. `checks` lists them all.
"""
