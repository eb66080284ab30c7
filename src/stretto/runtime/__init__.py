"""Run plans with real bytes: programs over TCP connections between processes.

- ``wire``: the frames; ``handshake``: how two ends authenticate; ``mesh``: all connections of a process.
- ``buffers``, ``pool``, ``landing``: the memory of chunks, and where arriving bytes go.
- ``execute``: runs a program; ``run`` is its loop, ``incoming`` its receiving side, ``pacing`` its sending order.
- ``local``, ``content``: all programs of a plan on this machine, with the result checked byte for byte.
- ``messages``: point-to-point messages; ``near``: Unix sockets within a machine; ``probe``: measuring a network.
"""
