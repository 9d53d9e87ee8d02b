"""An S3-compatible server (moto) on the loopback interface, as a process: prints its port, serves."""

from __future__ import annotations

import sys


def main() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    app = DomainDispatcherApplication(create_backend_app)
    # One request at a time: moto looks and puts in two steps, S3's conditional put is one.
    server = make_server("127.0.0.1", 0, app, threaded=False)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
