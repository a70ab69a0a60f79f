"""BIRD 2 beside the agent, which announces the routes of ``announce.bgp``.

``config`` renders its configuration, ``answers`` reads what it says, and both are pure. ``control`` is the agent's end:
the file and the socket. ``__main__`` is the container's program: it has the passwords, which the agent never sees.
"""
