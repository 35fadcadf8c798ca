"""One class for each header of a request or response; `base` reads and writes them.

Fields that the protocol adds to most requests and that a server may ignore (`ns`, `nsd`, `bname`, `oway`,
`lo`) are not declared: they are in `Command.ext`.
"""
