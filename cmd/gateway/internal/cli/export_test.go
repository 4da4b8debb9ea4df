package cli

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"time"
)

// Gateway is what the command serve stops.
type Gateway interface {
	Reload()
	Failed() <-chan error
	Stop(context.Context) error
}

// UntilStopped runs what the command serve does with a gateway that has started.
func UntilStopped(
	g Gateway, drain time.Duration, log *slog.Logger, exit func(int), signals,
	hangups <-chan os.Signal,
) error {
	return running{g, drain, log, exit}.untilStopped(signals, hangups)
}

// RaiseProcs sets GOMAXPROCS as the command serve does.
func RaiseProcs(environ []string) { raiseProcs(environ) }

// RunOn does what Run does, but health makes its connections by dial.
func RunOn(
	dial func(ctx context.Context, network, address string) (net.Conn, error), args []string,
	stdout, stderr io.Writer,
) int {
	return run(args, surroundings{stdout: stdout, stderr: stderr, dial: dial})
}
