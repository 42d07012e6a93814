"""What a reader makes of a state.

reading      one outcome a state; states that differ only where the reader does not look have the same
disk         a state as real files
looks        what a reader looked at, from its system calls, as questions to the state
questions    and their answers
memo         which answers lead to which outcome
"""
