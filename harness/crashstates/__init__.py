"""Every state that a crash can leave of a checkpoint save, and what the reader makes of each.

One recording, all states. The saver runs once, on real ranks, under strace; nothing else of it is needed.

    host          the process that has imported the user's file; forks the ranks that save and load
    strace        strace's lines as calls
    tracing       strace attached to running ranks
    recording     the calls of a save as operations on one file tree
      follow      the calls, one by one: whose they are, and in which order they count
      opening, naming, writing    what each system call does
      namespace   the names that a save can reach
      descriptors what the file descriptors of its processes stand for
      messages    what each rank knows of the others
    operation     what an operation is
    tree          a file tree that operations change
    units         what of a recording may be lost by itself, and in which ways
    models        which losses a kind of crash allows: kill, ext4-ordered, posix-min, alice
    explore       the states that a model allows, all of them or a bounded choice
    disk          a state as real files
    reading       what the user's load makes of a state; states that differ only where it does not look count as one
    verdict       what that is worth, given what had been acknowledged
    shrink        the least that has to be lost for it to fail
    findings      orders of operations that are wrong whatever the reader does
    wording       the report
    command       python -m harness crashstates FILE.py
"""
