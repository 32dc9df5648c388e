"""``millstream console``: the command and its help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from millstream.cli import completion
from millstream.cli.clients import client_properties
from millstream.cli.commands.console_users import UsersFile
from millstream.cli.options import ClientOptions, Common, repeated
from millstream.terminal.broker_check import typed_addresses
from millstream.terminal.outcome import UsageError

if TYPE_CHECKING:
    from millstream.console.login.login import Login
    from millstream.console.web.proxies import TrustedProxies
    from millstream.console.web.tls import TlsFiles

_PACKAGES: Final = ("starlette", "uvicorn", "jinja2")


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """Who may look at the console, and how."""

    allow_remote: Annotated[
        bool,
        typer.Option("--allow-remote", help="Let other machines connect without TLS, as behind a proxy."),
    ] = False
    trusted_proxies: Annotated[
        list[str] | None,
        repeated(
            "--trusted-proxy",
            metavar="ADDRESS[/CIDR]",
            help="Believe X-Forwarded-For from this proxy or network, when attempts to log in are counted",
        ),
    ] = None
    users: UsersFile = None
    bearer_token: Annotated[
        str | None,
        typer.Option(
            "--bearer-token",
            metavar="REFERENCE",
            help="Let scripts in that send this token: ${env:NAME}, ${file:PATH:KEY} or ${dir:PATH:NAME}.",
        ),
    ] = None
    tls_certificate: Annotated[
        str | None,
        typer.Option("--tls-certificate", metavar="FILE", help="Serve HTTPS with this certificate, in PEM."),
    ] = None
    tls_key: Annotated[
        str | None,
        typer.Option("--tls-key", metavar="FILE", help="Its private key, if it is in another file."),
    ] = None

    def login(self) -> Login | None:
        """The login; None where there are neither users nor a token."""
        from millstream.console.login.login import Login
        from millstream.console.login.users import Users, users_file

        login = Login.configured(Users(self.users or users_file()), self.bearer_token)
        if login is None and self.users is not None:
            raise UsageError(
                f"--users {self.users} holds no users, and without any there is no login: add one with "
                f"'millstream console-user add NAME --users {self.users}'"
            )
        return login

    def proxies(self) -> TrustedProxies:
        """Who is believed."""
        from millstream.console.web.proxies import TrustedProxies

        return TrustedProxies.of(self.trusted_proxies or ())

    def tls(self) -> TlsFiles | None:
        """The files of the certificate; None without TLS."""
        from millstream.console.web.tls import TlsFiles

        if self.tls_certificate is None:
            if self.tls_key is not None:
                raise UsageError("--tls-key needs a certificate: give --tls-certificate as well")
            return None
        return TlsFiles(self.tls_certificate, self.tls_key or self.tls_certificate)


def console(
    access: AccessOptions,
    client: ClientOptions,
    common: Common,
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", metavar="PORT", min=0, max=65535, help="0 is any free one.")
    ] = 8090,
    opens_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = False,
    refresh: Annotated[
        float,
        typer.Option("--refresh", metavar="SECONDS", min=0.2, help="How often pages are updated."),
    ] = 2.0,
    tables: Annotated[
        list[str] | None,
        repeated(
            "--table",
            metavar="SINK",
            help="Show what a load's table holds, as its --to names it",
            autocompletion=completion.sinks,
        ),
    ] = None,
) -> None:
    """See topics, groups and loads in the browser, live.

    It prints one line when it is ready and runs until Ctrl-C. If no broker answers, it keeps trying. It is
    read-only, but for users with the role 'change'. It asks for a login as soon as there are users
    (millstream console-user add) or a bearer token, and without one it listens for this machine only.

    [bold]Examples[/bold]

      millstream console
      millstream console --open --refresh 5
      millstream console --table delta:lake/orders --port 8091
      millstream console --host 0.0.0.0 --tls-certificate console.pem
    """
    from millstream.extras import require

    for package in _PACKAGES:
        require(package, "console")
    from millstream.config import AdminConfig
    from millstream.console.console import ConsoleSettings
    from millstream.console.web.server import ServeOptions, serve

    typed_addresses(common.servers)
    typed = client_properties(client.properties, {}, AdminConfig)
    settings = ConsoleSettings(common.servers, refresh, tuple(dict.fromkeys(tables or ())), typed)
    AdminConfig.from_settings(settings.for_clients(), {})
    remote, login, tls, proxies = access.allow_remote, access.login(), access.tls(), access.proxies()
    options = ServeOptions(settings, host, port, remote, login, tls, proxies, opens_browser, common.as_json)
    serve(options, lambda line: print(line, flush=True))
