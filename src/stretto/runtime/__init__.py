"""Run plans for real: programs over TCP connections between processes.

``wire`` is what frames look like, ``handshake`` how two ends trust each other, ``mesh`` the connections of
one process, ``buffers`` what chunks hold, ``execute`` the loop that runs a program, ``local`` all of a plan on
this machine with the result checked byte for byte.
"""
