"""What it takes to read a pickle, found out without reading it.

A pickle is a program for a machine with a stack. A small one may take for ever or all memory: an object that holds
another twice, which holds a third twice, and so on, is a tree that doubles at each level, and as the key of a
dictionary it has a hash that goes through all of the tree; an object is remembered at a place, which may be any number,
in a list that is as long.
"""

import pickletools

_LONGEST = 2**22  # bytes of a pickle: in memory its objects take up to a hundred times as much
_HEAVIEST = 1000  # objects in an object, counted as often as they are in it
_WORD = 64  # bits of an integer that count as an object
# Operations on what has no hash, or keeps it: what a container holds counts no more.
_LIGHT = frozenset(["APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "DICT", "LIST", "FROZENSET"])


def check(content: bytes) -> None:
    """Raises ValueError where a pickle would take more time or memory than one of tensors does, or is damaged."""
    if len(content) > _LONGEST:
        raise ValueError(f"its tensors are described in {len(content)} bytes, more than {_LONGEST}")
    stack, remembered = [], {}  # numbers of objects in each object, None for a mark
    for operation, argument, _ in pickletools.genops(content):
        if operation.name == "MEMOIZE" or operation.name.endswith("PUT"):
            place = len(remembered) if argument is None else argument
            if place > len(content):
                raise ValueError(f"an object in it is remembered at {place}")
            remembered[place] = stack[-1]
        elif operation.name.endswith("GET"):
            stack.append(remembered[argument])
        elif operation.name == "DUP":
            stack.append(stack[-1])
        else:
            taken = _taken(operation, stack)
            size = argument.bit_length() // _WORD if isinstance(argument, int) else 0
            weight = 1 if operation.name in _LIGHT else 1 + size + sum(taken)
            if weight > _HEAVIEST:
                raise ValueError(f"an object in it holds more than {_HEAVIEST} others")
            stack += [None if operation.name == "MARK" else weight] * len(operation.stack_after)


def _taken(operation: pickletools.OpcodeInfo, stack: list[int | None]) -> list[int]:
    """Takes from the stack what an operation takes."""
    before, taken = operation.stack_before, []
    marked = pickletools.markobject in before
    while marked and (top := stack.pop()) is not None:
        taken.append(top)
    number = before.index(pickletools.markobject) if marked else len(before)
    return taken + [stack.pop() for _ in range(number)]
