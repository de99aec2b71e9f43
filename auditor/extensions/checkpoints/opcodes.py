"""The opcodes of pickle, as a :class:`~auditor.extensions.checkpoints.machine.Machine` understands them."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from struct import Struct
from typing import Any

from auditor.extensions.checkpoints.contents import Malformed
from auditor.extensions.checkpoints.machine import NUMBER, Machine, Short
from auditor.extensions.checkpoints.marks import Group, frozen

OPERATIONS = 12_000_000
"""Opcodes of one pickle at most. 100,000 tensors with an optimizer's state have 5 million. Numbers
that stand in a row count as one.
"""

ROW = 1000
"""Numbers that are read at once: pickle puts as many into a list at a time."""


def run(machine: Machine) -> Any:
    """What the pickle describes; the machine's ``at`` stands behind it. Raises :class:`Malformed`
    or :class:`Short`.
    """
    table, data, size = TABLE, machine.data, len(machine.data)
    for _ in range(OPERATIONS):
        if machine.at >= size:
            raise Short
        code = data[machine.at]
        machine.at += 1
        if code == STOP:
            return machine.pop()
        operation = table.get(code)
        if operation is None:
            raise Malformed(f"its pickle has an opcode that no checkpoint needs (0x{code:02x})")
        if code not in TORCHS and not machine.beyond:
            machine.beyond = code
        operation(machine)
    raise Malformed(
        f"its pickle has more than {OPERATIONS} opcodes: more than any checkpoint needs"
    )


_U1, _U2, _I4, _U4, _U8 = Struct("<B"), Struct("<H"), Struct("<i"), Struct("<I"), Struct("<Q")
_FLOAT = Struct(">d")
STOP = pickle.STOP[0]
Operation = Callable[[Machine], None]


def _constant(value: Any) -> Operation:
    return lambda machine: machine.stack.append(value)


def _empty(kind: Callable[[], Any]) -> Operation:
    return lambda machine: machine.stack.append(kind())


def _number(form: Struct, code: bytes) -> Operation:
    """A number, and at once those behind it that are written alike: lists have millions."""
    row = re.compile(b"(?:%b.{%d}){1,%d}" % (re.escape(code), form.size, ROW), re.DOTALL)
    each = Struct(f"{form.format[0]}x{form.format[1:]}")

    def push(machine: Machine) -> None:
        machine.stack.append(form.unpack(machine.take(form.size))[0])
        data, at = machine.data, machine.at
        if data.startswith(code, at) and data.startswith(code, at + each.size):
            found = row.match(data, at)
            if found is not None:
                machine.stack += [number for (number,) in each.iter_unpack(found.group())]
                machine.at = found.end()

    return push


def _text(form: Struct) -> Operation:
    return lambda machine: machine.stack.append(
        machine.take(machine.number(form)).decode("utf-8", "surrogatepass")
    )


def _old_text(form: Struct) -> Operation:
    def push(machine: Machine) -> None:
        if (size := machine.number(form)) < 0:
            raise Malformed("its pickle has a text of negative length")
        machine.push(machine.take(size).decode("utf-8"))

    return push


def _bytes(form: Struct) -> Operation:
    return lambda machine: machine.stack.append(machine.take(machine.number(form)))


def _long(form: Struct) -> Operation:
    def push(machine: Machine) -> None:
        size = machine.number(form)
        if not 0 <= size <= NUMBER:
            raise Malformed("its pickle has an integer of an absurd length")
        machine.push(int.from_bytes(machine.take(size), "little", signed=True))

    return push


def _decimal(machine: Machine) -> None:
    line = machine.line()
    machine.push({b"00": False, b"01": True}[line] if line in (b"00", b"01") else int(line))


def _quoted(machine: Machine) -> None:
    line = machine.line()
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
        raise Malformed("its pickle has a text without quotes")
    machine.push(line[1:-1].decode("utf-8"))


def _tuple(size: int) -> Operation:
    def push(machine: Machine) -> None:
        if len(machine.stack) < size:
            raise Malformed("its pickle takes from an empty stack")
        machine.stack[-size:] = [tuple(machine.stack[-size:])]

    return push


def _mark(machine: Machine) -> None:
    machine.below.append(machine.stack)
    machine.stack = []


def _drop(machine: Machine) -> None:
    if machine.stack:
        machine.stack.pop()
    else:
        machine.marked()


def _pairs(machine: Machine) -> None:
    made: dict[Any, Any] = {}
    machine.items(made, machine.marked())
    machine.push(made)


def _store(form: Struct) -> Operation:
    def store(machine: Machine) -> None:
        machine.memo[machine.number(form)] = machine.top()

    return store


def _fetch(form: Struct) -> Operation:
    return lambda machine: machine.stack.append(machine.memo[machine.number(form)])


def _memoize(machine: Machine) -> None:
    machine.memo[len(machine.memo)] = machine.top()


def _store_line(machine: Machine) -> None:
    machine.memo[int(machine.line())] = machine.top()


def _append(machine: Machine) -> None:
    value = machine.pop()
    machine.extend(machine.top(), [value])


def _extend(machine: Machine) -> None:
    values = machine.marked()
    machine.extend(machine.top(), values)


def _add(machine: Machine) -> None:
    values = machine.marked()
    machine.extend(machine.top(), values, Group)


def _set_item(machine: Machine) -> None:
    value, key = machine.pop(), machine.pop()
    machine.items(machine.top(), [key, value])


def _set_items(machine: Machine) -> None:
    values = machine.marked()
    machine.items(machine.top(), values)


def _global(machine: Machine) -> None:
    module = machine.line().decode("utf-8")
    machine.push(machine.name(module, machine.line().decode("utf-8")))


def _stack_global(machine: Machine) -> None:
    attribute, module = machine.pop(), machine.pop()
    if not isinstance(attribute, str) or not isinstance(module, str):
        raise Malformed("its pickle asks for a name that is no text")
    machine.push(machine.name(module, attribute))


def _call(machine: Machine) -> None:
    arguments = machine.pop()
    machine.push(machine.call(machine.pop(), arguments))


def _new(machine: Machine) -> None:
    arguments = machine.pop()
    machine.push(machine.call(machine.pop(), arguments, new=True))


def _new_with_words(machine: Machine) -> None:
    words, arguments = machine.pop(), machine.pop()
    if not isinstance(words, dict) or not isinstance(arguments, tuple):
        raise Malformed("its pickle calls something without a list of arguments")
    machine.push(machine.call(machine.pop(), (*arguments, *words.values()), new=True))


def _instance(machine: Machine) -> None:
    module = machine.line().decode("utf-8")
    function = machine.name(module, machine.line().decode("utf-8"))
    machine.push(machine.call(function, tuple(machine.marked())))


def _object(machine: Machine) -> None:
    function, *arguments = machine.marked() or [None]
    machine.push(machine.call(function, tuple(arguments)))


def _build(machine: Machine) -> None:
    state = machine.pop()
    machine.state(machine.top(), state)


def _frame(machine: Machine) -> None:
    if machine.number(_U8) > len(machine.data) - machine.at:
        raise Short


def _protocol(machine: Machine) -> None:
    number = machine.number(_U1)
    if number > pickle.HIGHEST_PROTOCOL:
        raise Malformed(f"its pickle is of protocol {number}, which no Python writes")


TABLE: dict[int, Operation] = {
    pickle.PROTO[0]: _protocol,
    pickle.FRAME[0]: _frame,
    pickle.MARK[0]: _mark,
    pickle.POP[0]: _drop,
    pickle.POP_MARK[0]: lambda machine: machine.marked().clear(),
    pickle.DUP[0]: lambda machine: machine.push(machine.top()),
    pickle.NONE[0]: _constant(None),
    pickle.NEWTRUE[0]: _constant(True),
    pickle.NEWFALSE[0]: _constant(False),
    pickle.INT[0]: _decimal,
    pickle.LONG[0]: lambda machine: machine.push(int(machine.line().removesuffix(b"L"))),
    pickle.FLOAT[0]: lambda machine: machine.push(float(machine.line())),
    pickle.STRING[0]: _quoted,
    pickle.UNICODE[0]: lambda machine: machine.push(machine.line().decode("raw-unicode-escape")),
    pickle.BININT[0]: _number(_I4, pickle.BININT),
    pickle.BININT1[0]: _number(_U1, pickle.BININT1),
    pickle.BININT2[0]: _number(_U2, pickle.BININT2),
    pickle.BINFLOAT[0]: _number(_FLOAT, pickle.BINFLOAT),
    pickle.LONG1[0]: _long(_U1),
    pickle.LONG4[0]: _long(_I4),
    pickle.BINUNICODE[0]: _text(_U4),
    pickle.SHORT_BINUNICODE[0]: _text(_U1),
    pickle.BINUNICODE8[0]: _text(_U8),
    pickle.BINSTRING[0]: _old_text(_I4),
    pickle.SHORT_BINSTRING[0]: _old_text(_U1),
    pickle.BINBYTES[0]: _bytes(_U4),
    pickle.SHORT_BINBYTES[0]: _bytes(_U1),
    pickle.BINBYTES8[0]: _bytes(_U8),
    pickle.BYTEARRAY8[0]: lambda machine: machine.push(
        bytearray(machine.take(machine.number(_U8)))
    ),
    pickle.EMPTY_TUPLE[0]: _constant(()),
    pickle.EMPTY_LIST[0]: _empty(list),
    pickle.EMPTY_DICT[0]: _empty(dict),
    pickle.EMPTY_SET[0]: _empty(Group),
    pickle.TUPLE[0]: lambda machine: machine.push(tuple(machine.marked())),
    pickle.TUPLE1[0]: _tuple(1),
    pickle.TUPLE2[0]: _tuple(2),
    pickle.TUPLE3[0]: _tuple(3),
    pickle.LIST[0]: lambda machine: machine.push(machine.marked()),
    pickle.FROZENSET[0]: lambda machine: machine.push(frozen(machine.marked())),
    pickle.DICT[0]: _pairs,
    pickle.APPEND[0]: _append,
    pickle.APPENDS[0]: _extend,
    pickle.ADDITEMS[0]: _add,
    pickle.SETITEM[0]: _set_item,
    pickle.SETITEMS[0]: _set_items,
    pickle.PUT[0]: _store_line,
    pickle.BINPUT[0]: _store(_U1),
    pickle.LONG_BINPUT[0]: _store(_U4),
    pickle.MEMOIZE[0]: _memoize,
    pickle.GET[0]: lambda machine: machine.push(machine.memo[int(machine.line())]),
    pickle.BINGET[0]: _fetch(_U1),
    pickle.LONG_BINGET[0]: _fetch(_U4),
    pickle.GLOBAL[0]: _global,
    pickle.STACK_GLOBAL[0]: _stack_global,
    pickle.REDUCE[0]: _call,
    pickle.NEWOBJ[0]: _new,
    pickle.NEWOBJ_EX[0]: _new_with_words,
    pickle.INST[0]: _instance,
    pickle.OBJ[0]: _object,
    pickle.BUILD[0]: _build,
    pickle.BINPERSID[0]: lambda machine: machine.push(machine.storage(machine.pop())),
}
"""What each opcode does. Left out: EXT1, EXT2, EXT4 (names that only the loading process knows),
PERSID, and buffers.
"""

TORCHS = frozenset(b"aeGhJKMQqXb}])cjr(NRsuU.t\x80\x81\x85\x86\x87\x88\x89\x8a\x8f")
"""Those that ``torch.load(weights_only=True)`` knows (torch/_weights_only_unpickler.py)."""


def said(code: int) -> str:
    """An opcode in words: its name, and the first protocol that has it; empty for none."""
    import pickletools

    found = next((each for each in pickletools.opcodes if code and each.code == chr(code)), None)
    return f"the opcode {found.name} of protocol {found.proto}" if found else ""
