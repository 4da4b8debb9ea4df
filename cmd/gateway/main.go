// Command mooring is the gateway: MongoDB over gRPC and REST.
package main

import (
	"os"

	"github.com/mooringdb/mooring/cmd/gateway/internal/cli"
)

func main() {
	os.Exit(cli.Run(os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}
