# ruff: noqa: E501
"""Small ordinary Python programs, each of which must print in a sandbox what it prints in CPython.

A line `# NAME` begins each program. `book(n)` is a call out of the sandbox: it books
room `n`, prints nothing, and says whether the room was free (even numbers are).
"""

from __future__ import annotations

TEXT = r'''
# any stops at the first true call
print(any(book(r) for r in range(1, 6)))
# all stops at the first false call
print(all(book(r) for r in [2, 4, 5, 6]))
# next takes one call
print(next(r for r in range(1, 9) if book(r)))
# next with a default
print(next((r for r in (1, 3) if book(r)), None))
# sum makes every call
print(sum(book(r) for r in range(4)))
# a generator that is never used calls nothing
lazy = (book(r) for r in range(5))
print("nothing booked")
# a generator used in part
lazy = (book(r) for r in range(5))
print(next(lazy), next(lazy))
# a loop over a generator that breaks
for free in (book(r) for r in range(1, 6)):
    if free:
        break
print("done")
# map is lazy
found = map(book, [1, 2, 3])
print(next(found))
# filter is lazy
print(next(filter(book, [1, 3, 4, 6])))
# zip stops with the shortest
print(list(zip((book(r) for r in range(9)), "ab")))
# a list of calls
print([book(r) for r in range(3)])
# a dict of calls
print({r: book(r) for r in range(3)})
# calls in a condition are short-circuited
print(book(1) and book(2), book(2) or book(3))
# chained comparisons evaluate once
print(0 < book(2) < 2)
# conditional expressions call one side
print(book(1) if 1 > 2 else book(2))
# max with a calling key
print(max([1, 2, 3], key=lambda r: book(r)))
# sorted with a calling key
print(sorted([3, 2, 1], key=book))
# calls in default arguments happen once
def f(x=book(4)):
    return x
print(f(), f())
# calls in a decorator
def noted(function):
    book(8)
    return function
@noted
def g():
    return book(1)
print(g())
# calls in a with block
class Room:
    def __enter__(self):
        return book(2)
    def __exit__(self, *problem):
        book(3)
with Room() as free:
    print(free)
# calls in try and finally
try:
    book(1)
    raise ValueError("full")
except ValueError as problem:
    print(problem, book(2))
finally:
    book(5)
# calls from a generator function
def rooms():
    for r in range(9):
        if book(r):
            yield r
print([r for r, _ in zip(rooms(), range(2))])
# calls in a class body
class Hotel:
    first = book(2)
print(Hotel.first)
# calls inside a method
class Desk:
    def __init__(self):
        self.rooms = []
    def take(self, r):
        if book(r):
            self.rooms.append(r)
        return self
print(Desk().take(1).take(2).take(4).rooms)
# calls in a property
class Guest:
    @property
    def room(self):
        return book(6)
print(Guest().room, Guest().room)
# calls in __eq__ of a membership test
class R:
    def __init__(self, n):
        self.n = n
    def __eq__(self, other):
        return book(self.n)
print(R(1) in [R(3), R(4), R(6)])
# calls in __bool__
class Free:
    def __init__(self, n):
        self.n = n
    def __bool__(self):
        return book(self.n)
print([r for r in (1, 2, 3) if Free(r)])
# calls in a lambda
take = lambda *rooms: [book(r) for r in rooms]
print(take(1, 2))
# calls through functools.partial
from functools import partial
print(partial(book, 4)())
# calls through a cache
from functools import lru_cache
@lru_cache
def once(r):
    return book(r)
print(once(2), once(2), once(3))
# calls in a recursion
def down(n):
    return [] if n == 0 else [book(n)] + down(n - 1)
print(down(3))
# calls in a while condition
n = 1
while not book(n):
    n += 2
    if n > 5:
        n = 2
print(n)
# the walrus keeps a call's value
if (free := book(2)):
    print(free)
# takewhile calls as far as it needs
from itertools import takewhile
print(list(takewhile(book, [2, 4, 5, 6])))
# an f-string with a call
print(f"{book(2)} and {book(3)!r:>7}")
# the order of arguments
print((book(1), book(2), {"a": book(3)}))
# an assertion with a call
assert book(2), book(3)
print("held")
# a call in a slice
print("abcdef"[book(1):3 + book(2)])
# augmented assignment evaluates its target once
cells = [0, 0]
cells[int(book(2))] += 5
print(cells)
# unpacking calls
a, *b = [book(r) for r in (1, 2, 4)]
print(a, b)
# match on a call
match book(2):
    case False:
        print("taken")
    case True:
        print("free")
# an exception from a missing name is caught
try:
    unknown_value
except NameError as problem:
    print("NameError", problem)
# iadd on a class
class Bag:
    def __init__(self, *items):
        self.items = list(items)
    def __iadd__(self, other):
        self.items.append(other)
        return self
b = c = Bag(1)
b += 2
print(b is c, c.items)
# iadd on a list keeps the object
a = b = [1]
a += [2]
print(b, a is b)
# iadd on a tuple makes another
a = b = (1,)
a += (2,)
print(b, a)
# isub and imul
class V:
    def __init__(self, n):
        self.n = n
    def __isub__(self, k):
        self.n -= k
        return self
    def __imul__(self, k):
        self.n *= k
        return self
v = V(5)
v -= 1
v *= 3
print(v.n)
# del of a name
x = 1
del x
try:
    print(x)
except NameError:
    print("gone")
# del of an item
d = {"a": 1, "b": 2}
del d["a"]
print(d)
# del of a slice
xs = list(range(8))
del xs[1:4], xs[-1]
print(xs)
# del of an attribute
class A:
    pass
a = A()
a.x = 1
del a.x
print(hasattr(a, "x"))
# delitem of a class
class D:
    def __delitem__(self, key):
        print("deleted", key)
del D()["k"]
# class attributes are shared
class Counter:
    total = 0
    def add(self):
        Counter.total += 1
Counter().add()
Counter().add()
print(Counter.total)
# instance attributes hide those of the class
class A:
    x = 1
a = A()
a.x = 2
print(A.x, a.x)
# a mutable class attribute
class Team:
    members = []
Team().members.append("Ada")
print(Team().members)
# simple inheritance
class Animal:
    def __init__(self, name):
        self.name = name
    def say(self):
        return f"{self.name} says {self.sound()}"
class Dog(Animal):
    def sound(self):
        return "woof"
print(Dog("Rex").say())
# super
class Base:
    def __init__(self):
        self.log = ["base"]
class Child(Base):
    def __init__(self):
        super().__init__()
        self.log.append("child")
print(Child().log)
# multiple inheritance
class A:
    def who(self): return "A"
class B(A):
    def who(self): return "B" + super().who()
class C(A):
    def who(self): return "C" + super().who()
class D(B, C):
    pass
print(D().who(), [k.__name__ for k in D.__mro__])
# isinstance and issubclass
class A: pass
class B(A): pass
print(isinstance(B(), A), issubclass(B, A), isinstance(A(), B), isinstance(True, int))
# an abstract class
from abc import ABC, abstractmethod
class Shape(ABC):
    @abstractmethod
    def area(self): ...
class Square(Shape):
    def area(self): return 4
try:
    Shape()
except TypeError as problem:
    print("TypeError")
print(Square().area())
# an exception of one's own
class Full(Exception):
    pass
try:
    raise Full("no room")
except Full as problem:
    print(type(problem).__name__, problem)
# exceptions of one's own with fields
class Missing(KeyError):
    def __init__(self, key, near):
        super().__init__(key)
        self.near = near
try:
    raise Missing("Lyn", ["Lyon"])
except KeyError as problem:
    print(problem.args, problem.near)
# exception chaining
try:
    try:
        1 / 0
    except ZeroDivisionError as first:
        raise ValueError("bad input") from first
except ValueError as second:
    print(repr(second.__cause__))
# else and finally
def run(ok):
    try:
        if not ok:
            raise RuntimeError("no")
    except RuntimeError:
        return "except"
    else:
        return "else"
    finally:
        print("finally")
print(run(True), run(False))
# finally overrides a return
def f():
    try:
        return 1
    finally:
        return 2
print(f())
# re-raising
def f():
    try:
        int("x")
    except ValueError:
        raise
try:
    f()
except ValueError as problem:
    print(problem)
# several exception types
for value in ("x", None, "3"):
    try:
        print(int(value))
    except (ValueError, TypeError) as problem:
        print(type(problem).__name__)
# exception groups
try:
    raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])
except* ValueError as group:
    print([str(e) for e in group.exceptions])
except* KeyError as group:
    print("keys")
# Enum
from enum import Enum
class Color(Enum):
    RED = 1
    BLUE = "b"
print(Color.RED, Color("b").name, [c.value for c in Color], Color.RED is Color["RED"])
# IntEnum and auto
from enum import IntEnum, auto
class Level(IntEnum):
    LOW = auto()
    HIGH = auto()
print(Level.HIGH > Level.LOW, Level.HIGH + 1, repr(Level.LOW))
# Flag
from enum import Flag, auto
class Right(Flag):
    READ = auto()
    WRITE = auto()
both = Right.READ | Right.WRITE
print(Right.READ in both, both.value)
# a dataclass
from dataclasses import dataclass, field, asdict, replace
@dataclass
class Point:
    x: int
    y: int = 0
    tags: list = field(default_factory=list)
p = Point(1)
print(p, asdict(p), replace(p, y=3), Point(1) == p)
# an ordered frozen dataclass
from dataclasses import dataclass
@dataclass(frozen=True, order=True)
class Version:
    major: int
    minor: int
vs = [Version(1, 10), Version(1, 2)]
print(sorted(vs), hash(Version(1, 2)) == hash(vs[1]))
try:
    vs[0].major = 3
except Exception as problem:
    print(type(problem).__name__)
# dataclass inheritance and post init
from dataclasses import dataclass
@dataclass
class A:
    x: int
@dataclass
class B(A):
    y: int = 2
    def __post_init__(self):
        self.z = self.x + self.y
print(B(1).z, B(1))
# named tuples
from collections import namedtuple
P = namedtuple("P", "x y")
p = P(1, y=2)
print(p, p.x, p._replace(x=5), p._asdict(), tuple(p))
# typing.NamedTuple
from typing import NamedTuple
class City(NamedTuple):
    name: str
    people: int = 0
print(City("Lyon"), City("Nice", 3).people)
# a generator
def squares(n):
    for i in range(n):
        yield i * i
print(list(squares(4)), sum(squares(5)))
# yield from
def flat(xs):
    for x in xs:
        if isinstance(x, list):
            yield from flat(x)
        else:
            yield x
print(list(flat([1, [2, [3]], 4])))
# send to a generator
def total():
    t = 0
    while True:
        t += yield t
g = total()
next(g)
print(g.send(3), g.send(4))
# a generator's return value
def f():
    yield 1
    return "end"
def g():
    print((yield from f()))
print(list(g()))
# closing a generator
def f():
    try:
        yield 1
        yield 2
    finally:
        print("closed")
g = f()
print(next(g))
g.close()
# an infinite generator
from itertools import islice
def naturals():
    n = 0
    while True:
        yield n
        n += 1
print(list(islice(naturals(), 5)))
# an iterator class
class Countdown:
    def __init__(self, n): self.n = n
    def __iter__(self): return self
    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n
print(list(Countdown(3)))
# getitem makes an object iterable
class Three:
    def __getitem__(self, i):
        if i > 2:
            raise IndexError(i)
        return i * 10
print(list(Three()), 20 in Three())
# a context manager class
class Timer:
    def __enter__(self):
        print("in")
        return self
    def __exit__(self, kind, value, trace):
        print("out", kind.__name__ if kind else None)
        return kind is ValueError
with Timer():
    raise ValueError("swallowed")
print("after")
# contextlib
from contextlib import contextmanager, suppress
@contextmanager
def tag(name):
    print(f"<{name}>")
    yield name.upper()
    print(f"</{name}>")
with tag("b") as bold, suppress(ZeroDivisionError):
    print(bold)
    1 / 0
# properties and setters
class Celsius:
    def __init__(self, degrees): self.degrees = degrees
    @property
    def degrees(self): return self._d
    @degrees.setter
    def degrees(self, value):
        if value < -273.15:
            raise ValueError("too cold")
        self._d = value
c = Celsius(20)
c.degrees += 5
print(c.degrees)
try:
    c.degrees = -300
except ValueError as problem:
    print(problem)
# static and class methods
class Date:
    def __init__(self, y): self.y = y
    @classmethod
    def parse(cls, text): return cls(int(text[:4]))
    @staticmethod
    def leap(y): return y % 4 == 0
print(Date.parse("2024-01-01").y, Date.leap(2024), Date(1).leap(2023))
# a decorator with arguments
def times(n):
    def wrap(f):
        def inner(*args, **kwargs):
            return [f(*args, **kwargs) for _ in range(n)]
        return inner
    return wrap
@times(2)
def hi(name, mark="!"):
    return "hi " + name + mark
print(hi("Bo", mark="?"))
# functools.wraps
from functools import wraps
def quiet(f):
    @wraps(f)
    def inner(*a):
        return f(*a)
    return inner
@quiet
def named():
    """Doc."""
print(named.__name__, named.__doc__)
# stacked decorators
def a(f): return lambda: "a" + f()
def b(f): return lambda: "b" + f()
@a
@b
def c(): return "c"
print(c())
# a class decorator
def sized(cls):
    cls.size = len(cls.__name__)
    return cls
@sized
class Hello: pass
print(Hello.size)
# a closure
def counter():
    n = 0
    def inc():
        nonlocal n
        n += 1
        return n
    return inc
c, d = counter(), counter()
print(c(), c(), d())
# late binding
fs = [lambda: i for i in range(3)]
gs = [lambda i=i: i for i in range(3)]
print([f() for f in fs], [g() for g in gs])
# global
total = 0
def add(n):
    global total
    total += n
add(2)
add(3)
print(total)
# the scope of a comprehension
x = "outer"
ys = [x for x in range(3)]
print(x, ys)
# comprehension scope and walrus
total = 0
sums = [total := total + v for v in (1, 2, 3)]
print(sums, total)
# a comprehension in a class body
class A:
    n = 3
    xs = [i for i in range(n)]
print(A.xs)
# nested comprehensions
print([[r * c for c in range(3)] for r in range(3)], [x for row in [[1, 2], [3]] for x in row if x != 2])
# set and dict comprehensions
print(sorted({w[0] for w in "ape bear ant".split()}), {w: len(w) for w in ("a", "bcd")})
# local variables that are not bound yet
def f():
    print(v)
    v = 1
try:
    f()
except UnboundLocalError as problem:
    print(type(problem).__name__)
# mutable defaults
def add(x, xs=[]):
    xs.append(x)
    return xs
print(add(1), add(2))
# keyword-only and positional-only parameters
def f(a, /, b, *, c=3):
    return a, b, c
print(f(1, 2), f(1, b=5, c=6))
try:
    f(a=1, b=2)
except TypeError:
    print("TypeError")
# star arguments
def f(*args, **kwargs):
    return args, kwargs
print(f(1, *[2, 3], x=4, **{"y": 5}))
# star unpacking
first, *rest, last = range(6)
print(first, rest, last, [*rest, *"ab"], {**{"a": 1}, "b": 2})
# swapping and nested unpacking
a, b = 1, 2
a, b = b, a
(c, (d, e)) = (3, (4, 5))
print(a, b, c, d, e)
# sorting by several keys
people = [("Bo", 30), ("Al", 25), ("Cy", 30)]
print(sorted(people, key=lambda p: (-p[1], p[0])), sorted(people, key=lambda p: p[1], reverse=True))
# sorting is stable
print(sorted(["bb", "a", "cc", "d"], key=len))
# sorting with cmp_to_key
from functools import cmp_to_key
print(sorted([3, 1, 2], key=cmp_to_key(lambda a, b: b - a)))
# sorting with itemgetter and attrgetter
from operator import attrgetter, itemgetter
print(sorted([{"n": 2}, {"n": 1}], key=itemgetter("n")), attrgetter("real")(3))
# min and max with key and default
print(min(["ccc", "a"], key=len), max([], default="none"), max(3, 1, 2))
# string formatting
print("%s is %d years, %.2f m, %5s|%-5s|%05d" % ("Bo", 30, 1.756, "a", "b", 42))
# str.format
print("{0} {1} {0} {name!r:>6} {2:,}".format("a", "b", 1234567, name="x"))
# format specifications
for spec in (">8", "<8", "^8", "*^8", "08.3f", "+.1e", ".1%", "x", "#b"):
    print(spec, format(42 if spec[-1] in "xb" else 3.14159, spec))
# f-strings
name, n, w = "Zoe", 3.14159, 8
print(f"{name!r} {n:.2f} {n:{w}.1f}| {name:>{w}} {n=:.1f} {{}} {'a' + 'b'}")
# string methods
s = "  Hello, World  "
print(s.strip().lower().replace("l", "L"), s.strip().split(", "), "a-b-c".rsplit("-", 1), "x".join("abc"))
# more string methods
print("abc".center(9, "*"), "7".zfill(3), "Ab".swapcase(), "one two".title(), "abcabc".find("c"), "abc".partition("b"))
# string predicates
print("abc1".isalnum(), "abc".isalpha(), "12".isdigit(), " ".isspace(), "Abc".istitle(), "x_1".isidentifier())
# prefixes and suffixes
print("file.txt".removesuffix(".txt"), "un-do".removeprefix("un-"), "abc".startswith(("x", "a")))
# translate
print("hello".translate(str.maketrans("el", "ip", "o")))
# slicing
s = "abcdefgh"
print(s[2:5], s[::-1], s[-3:], s[::3], s[5:2:-1], s[:100])
# slice assignment
xs = list(range(6))
xs[1:3] = ["a", "b", "c"]
xs[::2] = [0] * len(xs[::2])
print(xs)
# slice objects
class S:
    def __getitem__(self, key): return key
print(S()[1:2], S()[::3, 4], slice(1, 5, 2).indices(4))
# bytes
b = "Zürich".encode()
print(b, len(b), b.decode(), b[0], bytes([65, 66]), b"ab" + b"c", b.hex())
# bytearray and memoryview
b = bytearray(b"abc")
b[0] = 120
b += b"d"
print(b, bytes(memoryview(b)[1:3]))
# unicode
print("ß".upper(), "İ".lower() == "i̇", ord("é"), chr(8364), "\N{BULLET}", "naïve".casefold(), len("👍🏽"))
# integers
print(7 // 2, -7 // 2, -7 % 3, divmod(-7, 3), 2 ** 100, pow(3, -1, 7), int("ff", 16), 0b101, 1_000)
# floats
print(0.1 + 0.2, round(2.5), round(3.5), round(2.675, 2), 1e308 * 10, float("nan") == float("nan"), 7.0 // 2)
# number formatting
print(1e16, 1e-5, 123456789.0, 1.0, 1 / 3, -0.0, 5e-324, 10 ** 20, 1e22)
# bit operations
print(6 & 3, 6 | 3, 6 ^ 3, ~6, 1 << 10, -16 >> 2, (255).bit_length(), bin(10), (10).bit_count())
# complex numbers
print((1 + 2j) * (3 - 1j), abs(3 + 4j), (1j) ** 2)
# booleans are integers
print(True + True, sum([True, False, True]), [10, 20][True], not 0, bool(""), bool([0]))
# chained comparisons
x = 5
print(1 < x < 10, 1 < x > 7, 1 == 1.0 == True)
# identity and equality
a, b = [1], [1]
print(a == b, a is b, None is None, (1, 2) < (1, 3), "a" < "b", [1] < [1, 0])
# __eq__ and __ne__
class N:
    def __init__(self, n): self.n = n
    def __eq__(self, other): return self.n == other.n
print(N(1) == N(1), N(1) != N(1), N(1) != N(2))
# __ne__ of its own
class N:
    def __ne__(self, other): return "unequal?"
print(N() != N(), N() == 1)
# __bool__ and __len__
class B:
    def __bool__(self): return False
class L:
    def __len__(self): return 0
print(bool(B()), not L(), "yes" if B() else "no", [1] if L() else [])
# __lt__ and sorting
class W:
    def __init__(self, w): self.w = w
    def __lt__(self, other): return self.w < other.w
    def __repr__(self): return f"W{self.w}"
print(sorted([W(3), W(1)]), min(W(2), W(1)))
# total_ordering
from functools import total_ordering
@total_ordering
class T:
    def __init__(self, n): self.n = n
    def __eq__(self, o): return self.n == o.n
    def __lt__(self, o): return self.n < o.n
print(T(1) <= T(2), T(3) > T(2), T(1) >= T(2))
# arithmetic of one's own
class V:
    def __init__(self, x, y): self.x, self.y = x, y
    def __add__(self, o): return V(self.x + o.x, self.y + o.y)
    def __mul__(self, k): return V(self.x * k, self.y * k)
    __rmul__ = __mul__
    def __neg__(self): return V(-self.x, -self.y)
    def __repr__(self): return f"V({self.x}, {self.y})"
print(V(1, 2) + V(3, 4), 2 * V(1, 1) * 3, -V(1, 2))
# NotImplemented
class A:
    def __add__(self, o): return NotImplemented
class B:
    def __radd__(self, o): return "B did it"
print(A() + B())
try:
    A() + 1
except TypeError:
    print("TypeError")
# __call__
class Add:
    def __init__(self, n): self.n = n
    def __call__(self, x): return x + self.n
print(Add(2)(3), list(map(Add(1), [1, 2])), callable(Add(1)))
# __contains__ and __getitem__
class Table:
    def __init__(self): self.d = {}
    def __setitem__(self, k, v): self.d[k] = v
    def __getitem__(self, k): return self.d[k]
    def __contains__(self, k): return k in self.d
    def __len__(self): return len(self.d)
t = Table()
t["a"] = 1
print("a" in t, t["a"], len(t), "b" in t)
# __getattr__
class Lazy:
    def __getattr__(self, name): return name.upper()
print(Lazy().abc)
# __setattr__ and __dict__
class A:
    def __setattr__(self, k, v): super().__setattr__(k, v * 2)
a = A()
a.x = 2
print(a.x, a.__dict__, vars(a))
# getattr, setattr, hasattr
class A: x = 1
setattr(A, "y", 2)
print(getattr(A, "y"), getattr(A, "z", None), hasattr(A, "x"))
# __slots__
class P:
    __slots__ = ("x",)
p = P()
p.x = 1
try:
    p.y = 2
except AttributeError:
    print("no y")
# __repr__ and __str__
class M:
    def __repr__(self): return "M()"
    def __str__(self): return "an m"
print(M(), [M()], f"{M()} {M()!r}", str(M()))
# __format__
class F:
    def __format__(self, spec): return f"<{spec}>"
print(f"{F():abc}", format(F()))
# __hash__
class K:
    def __init__(self, k): self.k = k
    def __eq__(self, o): return self.k == o.k
    def __hash__(self): return hash(self.k)
print(len({K(1), K(1), K(2)}), {K("a"): 1}[K("a")])
# __class_getitem__ and generics
from typing import Generic, TypeVar
T = TypeVar("T")
class Stack(Generic[T]):
    def __init__(self): self.xs: list[T] = []
    def push(self, x: T) -> "Stack[T]":
        self.xs.append(x)
        return self
print(Stack[int]().push(1).xs)
# __init_subclass__
class Plugin:
    known = []
    def __init_subclass__(cls, **kw):
        Plugin.known.append(cls.__name__)
class A(Plugin): pass
class B(A): pass
print(Plugin.known)
# descriptors
class Positive:
    def __set_name__(self, owner, name): self.name = "_" + name
    def __get__(self, obj, owner=None): return getattr(obj, self.name)
    def __set__(self, obj, value):
        if value <= 0: raise ValueError(self.name)
        setattr(obj, self.name, value)
class Item:
    price = Positive()
i = Item()
i.price = 3
print(i.price)
# a metaclass
class Meta(type):
    def __new__(m, name, bases, d):
        d["tag"] = name.lower()
        return super().__new__(m, name, bases, d)
class Artifact(metaclass=Meta): pass
print(Artifact.tag)
# type with three arguments
A = type("A", (), {"x": 1, "f": lambda self: self.x + 1})
print(A().f(), A.__name__)
# a singleton by __new__
class One:
    it = None
    def __new__(cls):
        if cls.it is None:
            cls.it = super().__new__(cls)
        return cls.it
print(One() is One())
# subclasses of builtins
class Names(list):
    def first(self): return self[0]
class Default(dict):
    def __missing__(self, key): return key * 2
print(Names("ab").first(), Default()["x"], isinstance(Names(), list))
# a subclass of int and str
class Cents(int):
    def __str__(self): return f"{self / 100:.2f}"
print(Cents(150), Cents(1) + 1)
# cached_property
from functools import cached_property
class A:
    n = 0
    @cached_property
    def x(self):
        A.n += 1
        return 5
a = A()
print(a.x, a.x, A.n)
# singledispatch
from functools import singledispatch
@singledispatch
def show(x): return "something"
@show.register
def _(x: int): return "a number"
@show.register(list)
def _(x): return "a list"
print(show(1), show([]), show("a"))
# reduce
from functools import reduce
print(reduce(lambda a, b: a * b, range(1, 6)), reduce(max, [3, 9, 2], 0))
# match on literals
def f(x):
    match x:
        case 0: return "zero"
        case 1 | 2: return "few"
        case int(n) if n > 100: return "many"
        case str(): return "text"
        case _: return "else"
print([f(x) for x in (0, 2, 500, 50, "a")])
# match on sequences
def f(x):
    match x:
        case []: return "none"
        case [a]: return a
        case [a, *rest]: return a, rest
print(f([]), f([1]), f((1, 2, 3)))
# match on mappings
match {"kind": "move", "by": 3, "x": 1}:
    case {"kind": "stop"}: print("stop")
    case {"kind": "move", "by": n, **rest}: print("move", n, rest)
# match on classes
from dataclasses import dataclass
@dataclass
class P:
    x: int
    y: int
match P(0, 3):
    case P(x=0, y=y): print("on the axis", y)
# while and else
n = 3
while n:
    n -= 1
else:
    print("empty")
for i in range(3):
    if i == 5: break
else:
    print("not found")
# continue and nested breaks
out = []
for i in range(4):
    for j in range(4):
        if j == i: break
        if j % 2: continue
        out.append((i, j))
print(out)
# enumerate, zip, reversed, range
print(list(enumerate("ab", 1)), list(zip([1, 2], "ab", (True, False))), list(reversed([1, 2])), range(5, 0, -2)[1])
# zip strict
try:
    list(zip([1], [1, 2], strict=True))
except ValueError:
    print("lengths differ")
# any, all, sum, abs, divmod
print(any([]), all([]), sum([1, 2], 10), sum([[1], [2]], []), abs(-3.5), divmod(17, 5))
# list methods
xs = [3, 1, 2]
xs.sort()
xs.insert(1, 9)
xs.extend([1, 1])
print(xs, xs.pop(), xs.index(9), xs.count(1), xs.remove(1), xs, xs.copy() == xs)
# dict methods
d = {"a": 1}
d.setdefault("b", []).append(2)
d.update(c=3)
print(d, d.pop("a"), d.get("x", 0), list(d.items()), d | {"z": 1}, "b" in d, d.popitem())
# dict order and views
d = {"b": 1, "a": 2}
d["c"] = 3
d["b"] = 9
print(list(d), d.keys() & {"a", "z"}, sorted(d.values()), list(reversed(d)))
# set operations
a, b = {1, 2, 3}, {2, 3, 4}
print(a & b, a | b, a - b, a ^ b, a <= b, {2} < a, a.isdisjoint({9}), frozenset([1]))
# tuples
t = (1, 2, 2)
print(t.count(2), t.index(2), t + (3,), t * 2, (1,), ())
# copying
import copy
a = [[1], 2]
b, c = copy.copy(a), copy.deepcopy(a)
a[0].append(9)
print(b, c)
# collections.Counter
from collections import Counter
c = Counter("mississippi")
print(c.most_common(2), c["z"], Counter("ab") + Counter("b"), sorted(c.elements())[:3])
# defaultdict
from collections import defaultdict
d = defaultdict(list)
for w in "ant bee ape".split():
    d[w[0]].append(w)
print(dict(d), defaultdict(int)["x"])
# deque
from collections import deque
q = deque([1, 2, 3], maxlen=3)
q.append(4)
q.appendleft(0)
q.rotate(1)
print(q, q.pop(), len(q))
# OrderedDict and ChainMap
from collections import ChainMap, OrderedDict
o = OrderedDict(a=1, b=2)
o.move_to_end("a")
print(list(o), ChainMap({"x": 1}, {"x": 2, "y": 3})["y"])
# itertools products
from itertools import combinations, permutations, product
print(list(product("ab", [1, 2])), list(combinations("abc", 2)), len(list(permutations(range(4)))))
# itertools chains
from itertools import accumulate, chain, count, cycle, islice, repeat
print(list(chain([1], "a")), list(accumulate([1, 2, 3])), list(islice(count(5, 2), 3)), list(islice(cycle("ab"), 3)))
# groupby
from itertools import groupby
print([(k, list(g)) for k, g in groupby("aabbba")], {k: len(list(g)) for k, g in groupby(sorted("hello"))})
# pairwise, zip_longest, starmap
from itertools import dropwhile, pairwise, starmap, zip_longest
print(list(pairwise("abc")), list(zip_longest([1], "ab", fillvalue=0)), list(starmap(pow, [(2, 3)])), list(dropwhile(bool, [1, 0, 2])))
# math
import math
print(math.sqrt(2), math.pi, math.gcd(12, 18), math.lcm(4, 6), math.factorial(10), math.comb(5, 2), math.isclose(0.1 + 0.2, 0.3))
# more math
import math
print(math.ceil(2.1), math.floor(-2.1), math.trunc(-2.9), math.log(8, 2), math.log10(1000), math.hypot(3, 4), math.prod([2, 3]), math.degrees(math.pi), math.inf)
# trigonometry
import math
print(round(math.sin(math.radians(30)), 10), math.atan2(1, 1), math.dist((0, 0), (3, 4)), math.fsum([0.1] * 10), math.isnan(math.nan))
# statistics
import statistics as st
print(st.mean([1, 2, 4]), st.median([3, 1, 2]), st.stdev([1, 2, 3, 4]), st.mode("aab"), st.quantiles([1, 2, 3, 4], n=4), st.fmean([1, 2]))
# fractions
from fractions import Fraction
print(Fraction(1, 3) + Fraction("1/6"), Fraction(0.5), Fraction(3, 4).numerator, float(Fraction(1, 8)))
# decimal
from decimal import ROUND_HALF_UP, Decimal, getcontext
print(Decimal("0.1") + Decimal("0.2"), Decimal("2.675").quantize(Decimal("0.01"), ROUND_HALF_UP), Decimal(1) / 3, getcontext().prec)
# datetime arithmetic
from datetime import date, datetime, timedelta
print(date(2024, 2, 28) + timedelta(days=2), (date(2024, 3, 1) - date(2023, 3, 1)).days, datetime(2024, 1, 31, 23) + timedelta(hours=2))
# datetime formatting
from datetime import datetime
d = datetime(2024, 3, 9, 14, 5, 7)
print(d.strftime("%A, %d %B %Y %H:%M"), d.isoformat(), d.weekday(), f"{d:%Y/%m/%d}", d.replace(day=1).date())
# datetime parsing
from datetime import datetime
print(datetime.strptime("9 Mar 2024", "%d %b %Y"), datetime.fromisoformat("2024-03-09T10:00:00+02:00").utcoffset())
# time zones
from datetime import datetime, timedelta, timezone
utc = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)
print(utc.astimezone(timezone(timedelta(hours=-5))), utc.timestamp(), repr(timedelta(days=1, seconds=5)))
# the modules of the prelude may be imported
import datetime
print(datetime.date(2024, 1, 1), datetime.timedelta(hours=30))
# calendar
import calendar
print(calendar.monthrange(2024, 2), calendar.isleap(1900), calendar.day_name[0], calendar.month_abbr[12])
# json
import json
print(json.dumps({"b": [1, None, True], "a": "é"}, sort_keys=True), json.dumps([1], indent=2), json.loads('{"x": 1.5e3}'))
# json errors
import json
try:
    json.loads("{bad}")
except json.JSONDecodeError as problem:
    print(problem.msg, problem.pos)
try:
    json.dumps({1, 2})
except TypeError as problem:
    print(problem)
# json with default and object_hook
import json
from datetime import date
print(json.dumps({"d": date(2024, 1, 2)}, default=str), json.loads('{"a": {"b": 1}}', object_hook=lambda d: sorted(d)))
# re search and groups
import re
m = re.search(r"(?P<y>\d{4})-(\d\d)", "on 2024-03-09")
print(m.group(), m["y"], m.groups(), m.span(), m.groupdict())
# re findall, sub, split
import re
print(re.findall(r"\d+", "a1b22"), re.sub(r"(\w)(\d)", r"\2\1", "a1 b2"), re.split(r"[,;]\s*", "a, b;c"), re.sub("x", lambda m: "y" * 2, "axa"))
# re flags and lookaround
import re
p = re.compile(r"^a(?=b)", re.I | re.M)
print(p.findall("Ab\nac\nab"), bool(re.fullmatch(r"[a-z]+", "abc")), [m.start() for m in re.finditer("o", "foo")])
# textwrap
import textwrap
print(textwrap.fill("the quick brown fox jumps", 10), textwrap.dedent("  a\n  b"), textwrap.shorten("one two three", 9))
# string module
import string
print(string.ascii_lowercase[:5], string.digits, string.Template("$a b").substitute(a=1), string.capwords("a bc"))
# heapq and bisect
import bisect, heapq
h = [5, 1, 4]
heapq.heapify(h)
heapq.heappush(h, 0)
print(heapq.heappop(h), heapq.nlargest(2, h), bisect.bisect([1, 3, 5], 3), bisect.insort(h, 9))
# operator
import operator
print(operator.add(1, 2), operator.methodcaller("upper")("a"), list(map(operator.mul, [1, 2], [3, 4])))
# csv
import csv, io
rows = list(csv.DictReader(io.StringIO('name,n\n"a, b",1\nc,2\n')))
print(rows, sum(int(r["n"]) for r in rows))
# io.StringIO
import io
out = io.StringIO()
print("a", 1, sep="-", end=";", file=out)
print(repr(out.getvalue()))
# random with a seed
import random
r = random.Random(7)
print(r.random(), r.randint(1, 6), r.choice("abc"), r.sample(range(9), 3))
# hashlib and base64
import base64, hashlib
print(hashlib.sha256(b"a").hexdigest()[:12], base64.b64encode(b"hi!").decode(), base64.b64decode("aGk="))
# uuid and urllib.parse
import uuid
from urllib.parse import quote, urlencode, urlparse
print(uuid.uuid5(uuid.NAMESPACE_DNS, "x.org"), quote("a b/ü"), urlencode({"q": "a b"}), urlparse("http://x.org/p?q=1").query)
# html, zlib, struct, binascii
import html, struct, zlib
print(html.escape("<a>"), zlib.crc32(b"a"), struct.pack(">HB", 1, 2), html.unescape("&amp;"))
# pprint
from pprint import pformat
print(pformat({"b": 1, "a": [1, 2]}), pformat(list(range(40)), width=40))
# difflib
import difflib
print(difflib.get_close_matches("appel", ["apple", "ape"]), round(difflib.SequenceMatcher(None, "abc", "abd").ratio(), 3))
# array and numbers
import array, numbers
print(array.array("i", [1, 2]).tolist(), isinstance(3, numbers.Number), isinstance(2.5, numbers.Integral))
# types
from types import SimpleNamespace
s = SimpleNamespace(a=1)
s.b = 2
print(s, s.a + s.b)
# typing at run time
from typing import Optional, Union, get_args
def f(x: Optional[int] = None) -> list[str]:
    return [str(x)]
print(f.__annotations__["x"], get_args(Union[int, str]), f(3))
# inspect
import inspect
def f(a, b=2, *c, **d): "Doc."
print(inspect.signature(f), inspect.getdoc(f), inspect.isfunction(f))
# graphlib
from graphlib import TopologicalSorter
print(list(TopologicalSorter({"c": ["b"], "b": ["a"]}).static_order()))
# zoneinfo-free weekday arithmetic
from datetime import date, timedelta
d = date(2024, 5, 1)
print([(d + timedelta(days=i)).strftime("%a") for i in range((4 - d.weekday()) % 7 + 1)])
# asyncio gather
async def double(n):
    await asyncio.sleep(0)
    return n * 2

async def main():
    return await asyncio.gather(*(double(i) for i in range(3)))
print(asyncio.run(main()))
# async generators and comprehensions
async def numbers():
    for i in range(3):
        yield i
async def main():
    return [i * 2 async for i in numbers() if i]
print(asyncio.run(main()))
# async context managers and queues
class A:
    async def __aenter__(self): return "in"
    async def __aexit__(self, *p): print("out")
async def main():
    q = asyncio.Queue()
    async with A() as a:
        await q.put(a)
    return await q.get()
print(asyncio.run(main()))
# tasks and exceptions
async def fail(): raise ValueError("no")
async def main():
    return await asyncio.gather(fail(), asyncio.sleep(0, "ok"), return_exceptions=True)
print([repr(x) for x in asyncio.run(main())])
# globals, locals and dir
def f():
    a = 1
    return sorted(locals())
marker = 5
print(f(), globals()["marker"], [n for n in dir([]) if n.startswith("ap")])
# eval, exec and compile
print(eval("1 + x", {"x": 2}))
names = {}
exec("def f(n):\n    return n * 2", names)
print(names["f"](4), eval(compile("3 * 3", "<s>", "eval")))
# iter with a sentinel
values = iter([1, 2, 0, 3])
print(list(iter(lambda: next(values), 0)))
# print options
print("a", "b", sep="", end="!\n")
print(*[1, 2], sep="\n")
print()
# repr of nested values
print([1, "a'b", 'q"', None, 1.0, (1,), {"k": {1}}, b"x", ...], repr("a\n\t\\"))
# recursive structures
xs = [1]
xs.append(xs)
print(xs)
# long loops and big results
print(sum(i * i for i in range(10_000)), len(str(2 ** 5000)), sum(divmod(10 ** 30, 7)))
# sieve
n = 50
sieve = [True] * n
for i in range(2, 8):
    for j in range(i * i, n, i):
        sieve[j] = False
print([i for i in range(2, n) if sieve[i]])
# memoised fibonacci
from functools import cache
@cache
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(90))
# quicksort
def qs(xs):
    if len(xs) < 2: return xs
    p, *r = xs
    return qs([x for x in r if x < p]) + [p] + qs([x for x in r if x >= p])
print(qs([3, 6, 1, 8, 2, 9, 2]))
# matrix transpose and product
a = [[1, 2], [3, 4]]
print(list(zip(*a)), [[sum(x * y for x, y in zip(r, c)) for c in zip(*a)] for r in a])
# word count
text = "the cat and the hat and the bat"
counts = {}
for w in text.split():
    counts[w] = counts.get(w, 0) + 1
print(sorted(counts.items(), key=lambda kv: (-kv[1], kv[0])))
# a linked list
class Node:
    def __init__(self, value, next=None): self.value, self.next = value, next
    def __iter__(self):
        node = self
        while node:
            yield node.value
            node = node.next
print(list(Node(1, Node(2, Node(3)))))
# a tree with recursion
class Tree:
    def __init__(self, v, l=None, r=None): self.v, self.l, self.r = v, l, r
    def walk(self):
        if self.l: yield from self.l.walk()
        yield self.v
        if self.r: yield from self.r.walk()
print(list(Tree(2, Tree(1), Tree(3)).walk()))
# a state machine with Enum
from enum import Enum
class S(Enum):
    OFF = "off"
    ON = "on"
    def flip(self): return S.ON if self is S.OFF else S.OFF
s = S.OFF
for _ in range(3): s = s.flip()
print(s)
# an account with errors of its own
class TooMuch(Exception): pass
class Account:
    def __init__(self): self._b = 0
    @property
    def balance(self): return self._b
    def pay(self, n):
        if n > self._b: raise TooMuch(f"{n} > {self._b}")
        self._b -= n
a = Account()
a._b = 10
a.pay(4)
try: a.pay(7)
except TooMuch as e: print(e, a.balance)
# breadth-first search
from collections import deque
graph = {"a": "bc", "b": "d", "c": "d", "d": ""}
seen, q = {"a": 0}, deque("a")
while q:
    n = q.popleft()
    for m in graph[n]:
        if m not in seen:
            seen[m] = seen[n] + 1
            q.append(m)
print(seen)
# dates between two days
from datetime import date, timedelta
a, b = date(2024, 2, 27), date(2024, 3, 2)
print([str(a + timedelta(i)) for i in range((b - a).days)])
# money with rounding
prices = {"tea": 2.5, "cake": 3.25}
order = [("tea", 2), ("cake", 1)]
total = sum(prices[n] * k for n, k in order)
print(f"{total:.2f} EUR, {total * 1.19:.2f} with tax, {round(total / 3, 2)} each")
# parsing lines
data = """name;qty
bolt;12
nut;7"""
head, *rows = [line.split(";") for line in data.splitlines()]
print([dict(zip(head, row)) for row in rows], max(rows, key=lambda r: int(r[1]))[0])
# roman numerals
def roman(n):
    out = ""
    for v, s in ((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):
        while n >= v:
            out += s
            n -= v
    return out
print([roman(n) for n in (4, 9, 14, 38)])
# caesar cipher
print("".join(chr((ord(c) - 97 + 3) % 26 + 97) if c.isalpha() else c for c in "hello xyz"))
# type errors have Python's words
for code in ('"a" + 1', "len(3)", "{}['k']", "None.x", "int('z')", "[][3]", "(lambda: 1)(2)"):
    try:
        eval(code)
    except Exception as problem:
        print(type(problem).__name__, problem)
# the traceback of an error that is caught
import traceback
try:
    {}["x"]
except KeyError:
    print(traceback.format_exc().splitlines()[-1])
# warnings
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    warnings.warn("old", DeprecationWarning)
print(len(caught), caught[0].message)
# weak references
import weakref
class A: pass
a = A()
r = weakref.ref(a)
print(r() is a)
del a
print(r())
# object identity by id
a = [1]
b = a
print(id(a) == id(b), id(a) == id([1]), type(id(a)) is int)
# hash of equal numbers
print(hash(1) == hash(1.0) == hash(True), {1: "a", 1.0: "b", True: "c"})
# pickling and copying objects
import copy, pickle
class A:
    def __init__(self): self.x = [1]
a = pickle.loads(pickle.dumps(A()))
print(a.x, copy.deepcopy(a).x is a.x)
# deep recursion within the limit
def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
print(depth(900))
# ordering of dict and set equality
print({"a": 1, "b": 2} == {"b": 2, "a": 1}, {1, 2} == {2, 1}, [1, 2] == (1, 2))
'''


def programs() -> dict[str, str]:
    """The programs by name."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in TEXT.strip("\n").split("\n"):
        if line.startswith("# "):
            lines = found.setdefault(line[2:], [])
            if lines:
                raise ValueError(f"two programs are named {line[2:]!r}")
        else:
            lines.append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


PROGRAMS = programs()
