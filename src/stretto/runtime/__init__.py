"""Run plans with real bytes: programs over TCP connections between processes.

- ``connect``: how processes find and authenticate each other; ``mesh``: all connections of a process; ``wire``: frames.
- ``execute``: runs a program by ``loop``; ``incoming`` is its receiving side, ``sending`` the other one, ``pacing`` the
  order there.
- ``buffers``, ``pool``: the memory of chunks.
- ``local``, ``content``: all programs of a plan on this machine, with the result checked byte for byte.
- ``cost``: what a message costs these processes, for the topology that plans are made with.
- ``messages``: point-to-point messages; ``probe``, ``streams``: what two processes measure of the network between them.
"""
