# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What Python programs do while a window is open. usage: python_victim.py MODULE SCENARIO"""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

module = ctypes.CDLL(os.path.abspath(sys.argv[1]))


def work(name, count):
    status = module.module_work(name.encode(), count)
    if status != 0:
        raise RuntimeError(f"CUDA error {status}")
    return count


def in_a_window(body):
    assert module.module_open() == 0
    work("before", 10)
    body()
    work("after", 10)
    assert module.module_close() == 0


def square(number):
    return number * number


def one_window(count):
    assert module.module_open() == 0
    work("child", count)
    assert module.module_close() == 0
    module.module_flush()


def try_work(_):
    try:
        return work("child", 1)
    except RuntimeError as error:
        return str(error)


def pool(method, function, values=range(4)):
    with multiprocessing.get_context(method).Pool(2) as workers:
        print(method, workers.map(function, values), flush=True)
        workers.close()
        workers.join()


def processes():
    def body():
        print(subprocess.run(["sh", "-c", "echo x; exit 4"], capture_output=True, check=False), flush=True)
        # Any preexec_fn makes it use fork rather than vfork.
        print(subprocess.run([sys.executable, "-c", "print('y')"], capture_output=True, check=False,
                             preexec_fn=lambda: os.nice(0)).stdout, flush=True)
        try:
            subprocess.run(["no-such-program"], check=False)
        except FileNotFoundError as error:
            print(error.strerror, flush=True)
        print(os.system("exit 3"), os.popen("echo z").read(), flush=True)
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            print(child.communicate(b"through a pipe"), flush=True)
    in_a_window(body)


def workers_without_cuda(method):
    in_a_window(lambda: pool(method, square))


def forked_workers_try_cuda():
    in_a_window(lambda: pool("fork", try_work))


def workers_with_cuda(method):
    # Each has a window of its own.
    def body():
        context = multiprocessing.get_context(method)
        children = [context.Process(target=one_window, args=(count,)) for count in (3, 4)]
        for child in children:
            child.start()
        for child in children:
            child.join()
        print([child.exitcode for child in children], flush=True)
    in_a_window(body)


def cuda_in_workers_alone(method):
    children = [multiprocessing.get_context(method).Process(target=one_window, args=(count,)) for count in (3, 4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    print([child.exitcode for child in children], flush=True)


def loader_threads_and_forks():
    # A data loader's workers are restarted for every epoch, while other threads launch.
    done = threading.Event()

    def launch():
        while not done.is_set():
            work("steady", 5)

    def body():
        thread = threading.Thread(target=launch)
        thread.start()
        for _ in range(5):
            pool("fork", square)
        done.set()
        thread.join()
    in_a_window(body)


def interrupted(window):
    # A shell's background processes ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    in_a_window(lambda: None)
    if window == "open":
        assert module.module_open() == 0
        work("cut", 7)
    print("working", flush=True)
    # Like Ctrl+C: KeyboardInterrupt in the main thread, which is not caught.
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    while True:
        time.sleep(1)


def interrupt_caught():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    in_a_window(lambda: None)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    except KeyboardInterrupt:
        print("stopping", flush=True)
    in_a_window(lambda: None)


def exception():
    assert module.module_open() == 0
    work("cut", 7)
    raise ValueError("nobody catches this")


def system_exit():
    assert module.module_open() == 0
    work("cut", 7)
    sys.exit(5)


SCENARIOS = {"processes": processes, "forked_workers_try_cuda": forked_workers_try_cuda,
             "loader_threads_and_forks": loader_threads_and_forks, "interrupt_caught": interrupt_caught,
             "exception": exception, "system_exit": system_exit}
FAMILIES = {"workers_without_cuda": workers_without_cuda, "workers_with_cuda": workers_with_cuda,
            "cuda_in_workers_alone": cuda_in_workers_alone, "interrupted": interrupted}

if __name__ == "__main__":
    scenario, _, argument = sys.argv[2].partition(":")
    if argument:
        FAMILIES[scenario](argument)
    else:
        SCENARIOS[scenario]()
