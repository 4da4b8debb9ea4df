package cli

import (
	"github.com/mooringdb/mooring/cmd/gateway/internal/shell"
)

// dataCommands returns the commands that work with data.
func dataCommands() []command {
	var all []command
	for _, c := range shell.Commands() {
		all = append(all, command{
			name: c.Name, operands: c.Operands, synopsis: c.Synopsis, doc: c.Doc,
			flags: c.AllFlags, complete: c.Complete,
			run: func(in call) error {
				return c.Run(shell.Invocation{
					Flags: in.flags, Operands: in.operands, Environ: in.environ,
					Stdin: in.stdin, Stdout: in.stdout, Stderr: in.stderr,
				})
			},
		})
	}
	return all
}
