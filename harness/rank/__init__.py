"""What runs inside a run's own processes: the supervisor, torchrun's agent and the ranks.

Imports the standard library, torch, xxhash, psutil and the shared modules (errors, wire, faults, checkpoint), never
the controller. In the order of a run's life:

    warm          the parent that imported torch once and forks a supervisor for each run
    supervisor    starts the agent, waits with a deadline, takes evidence, ends and sweeps everything
    agent         torchrun's elastic agent, forking ranks
    main          prepares one rank, then runs the training script as __main__, unmodified
    recorder      one JSON line per event
    triggers      which planned fault fires at which point
    collectives   sees and replaces every collective
    bad_calls     what a fault does with one collective call
    steps         global step, phases, digests after each update
    scalers       the scale of each GradScaler
    batches       which of the batches handed out an update trains on
    loader        what each DataLoader handed out
    shared_memory which files in /dev/shm a rank makes, and what is left of them
    storage       the checkpoint store's failpoints, and torch.save
    moments       what optimizers keep, nested or not
    digest        bytes of tensors to a few hex digits
"""
