"""A program that has another one forked, and ends as that does: `launch.py ADDRESS MAIN [ARGUMENT…]`.

It is for who starts a command by itself: as long as the command runs, the program runs with its files, arguments,
environment and folder; the program is killed when the command is. It imports next to nothing.
"""

import os
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOL_SOCKET, socket

address, main, *arguments = sys.argv[1:]
given = [f"{name}={value}" for name, value in os.environ.items()]
folder = os.getcwd()  # noqa: PTH109  # without the import
said = "\0".join([main, folder, "", str(len(arguments)), *arguments, *given])
files = b"".join(file.to_bytes(4, sys.byteorder) for file in (0, 1, 2))
line = socket(AF_UNIX)
line.connect(address)
line.sendmsg([os.fsencode(said)], [(SOL_SOCKET, SCM_RIGHTS, files)])
for file in (0, 1, 2):
    os.close(file)
line.recv(4)
code = int.from_bytes(line.recv(4), sys.byteorder, signed=True)
if code < 0:
    os.kill(os.getpid(), -code)
os._exit(code)
