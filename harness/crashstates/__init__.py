"""Every state that a crash can leave of a checkpoint save, and what the reader makes of each.

One recording, all states. The saver runs once, on real ranks, under strace; nothing else of it is needed.

    command      python -m harness crashstates FILE.py
    examine      one file, from its recording to what its states are worth
      ranks/     the file's save and load, on ranks
      record/    what a save did, from its system calls
      operation, tree    one thing that it did; the file tree that is changed by it
      cuts       how far each rank may have come when the crash came
      units      what may be lost by itself, and in which ways
      models     what a kind of crash may lose: kill, ext4-ordered, posix-min, alice
      explore    the states that a model allows, all of them or a bounded choice
      read/      what the reader makes of a state
      verdict    what that is worth, given what had been acknowledged
      shrink     the least that has to be lost for it to fail
    findings     orders of operations that are wrong by themselves
    wording      the report
    archive      failing states, kept to be loaded again
    expect       what a scenario expects of it
"""
