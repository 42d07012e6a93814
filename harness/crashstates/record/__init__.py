"""What a save did, from its system calls.

tracing      strace attached to running ranks
strace       its lines as calls
recording    the calls of a save as operations on one file tree
  follow     the calls, one by one: whose they are, and in which order they count
  opening, naming, writing    what each system call does
  namespace  the names that a save can reach
  descriptors    what the file descriptors of its processes stand for
  running    which line of the user's was running
  messages   what each rank knows of the others
"""
