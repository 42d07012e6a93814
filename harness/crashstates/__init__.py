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
      frames     fates that come to the same state
      explore    the states that a model allows, all of them or a bounded choice
      read/      what the reader makes of a state
      verdict    what that is worth, given what had been acknowledged
      calibration    what load returns after undisturbed saves, against which it is held
      shrink     the least that has to be lost for it to fail
    scratch      directories for as long as it runs
    sweep        trouble while a save runs, wherever it can come, and what is loaded then
      trouble/   the troubles: disk-full, io-error, killed, late-visible, lying-fsync, read-only, slow,
                 two-writers
      testbed    saves in a directory of their own each, one of them disturbed, then the load
      positions  the calls that a trouble can befall
      vain_syncs what a failed fsync leaves behind
    findings     orders of operations that are wrong by themselves
    wording, sweep_wording    the report
    progress     how far it is, on a terminal
    archive      failing states, kept to be loaded again
    expect       what a scenario expects of it
"""
