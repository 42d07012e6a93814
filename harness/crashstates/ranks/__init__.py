"""A user's file with save and load, run on ranks.

session      the controller's handle on one file: ranks that save, ranks that load
  hosting    the controller's handle on the process that imports files
  forked     and on what that forks
  outcome    what came of a call, rank by rank
channel      how both sides speak
markers      what a traced rank says of itself among its system calls
host         that process: imports a file and forks its ranks          (from here on: inside these processes)
  nursery    forks, and reaps what was forked
  rank       what a rank does: saves, loads
  lines      which line of the user's is running
  content    a digest of whatever load returned
"""
