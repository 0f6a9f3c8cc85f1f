"""What a build of Python does: compiled packages, processes that share memory, threads, sockets, a database."""

import multiprocessing
import socket
import sqlite3
import sys
import threading

import markupsafe._speedups


def add(total):
    for _ in range(100):
        with total.get_lock():
            total.value += 1


def test_a_compiled_package():
    escaped = markupsafe._speedups.escape("<b>")
    print(f"python {sys.version_info.major}.{sys.version_info.minor} escapes {escaped}")
    assert escaped == "&lt;b&gt;"


def test_processes_share_memory():
    total = multiprocessing.Value("i", 0)
    workers = [multiprocessing.Process(target=add, args=(total,)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert total.value == 400


def test_a_server_in_a_thread():
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=lambda: server.accept()[0].sendall(b"served"))
        thread.start()
        with socket.create_connection(server.getsockname()) as client:
            assert client.recv(16) == b"served"
        thread.join()


def test_a_database(tmp_path):
    database = sqlite3.connect(tmp_path / "sums.db")
    database.execute("pragma journal_mode = wal")
    database.execute("create table number (value integer)")
    database.executemany("insert into number values (?)", ((value,) for value in range(101)))
    assert database.execute("select sum(value) from number").fetchone() == (5050,)
