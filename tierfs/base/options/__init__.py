"""Say what can be set: the tree of settings, the policies of directories, which of two values counts.

`config` is the settings tree, every option with its unit, its default and the origin of that number; `kinds` are the
values that options take. `settings` reads the tree from a file and the environment, `store_toml` edits that file.
`policy` is what a directory decides for the segments below it, and `precedence` finds the one that counts.
`memory` fits settings into the memory limit of a process. `contradictions` names settings that cannot both be meant.
"""
