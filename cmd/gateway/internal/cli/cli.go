// Package cli contains the gateway's command line: its commands, their help and their exit codes.
// config reads the settings, and app runs the gateway.
package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1 // the command failed
	exitUsage = 2 // the command line is invalid
)

// command describes one word after the program's name.
type command struct {
	name, synopsis string
	args           []string // required words besides flags, for the usage line
	operand        string   // name of one more required word; empty: there is none
	doc            string
	configured     bool                 // takes the options of config
	flags          func(*pflag.FlagSet) // further flags, if any
	run            func(call) error
}

// call holds what a command works with.
type call struct {
	flags          *pflag.FlagSet
	operand        string // the word that command.operand names
	environ        []string
	stdout, stderr io.Writer
}

var commands = []command{
	{
		name: "serve", configured: true, run: serve,
		synopsis: "run the gateway",
		doc: "Runs the gateway until SIGTERM or SIGINT. Requests in flight may then finish " +
			"within\n" +
			"--drain-timeout. The gateway starts even if MongoDB cannot be reached; /readyz is " +
			"503 until\n" +
			"it can be reached and lets the gateway log in.",
	},
	{
		name: "check", configured: true, run: checkDeployment, flags: checkFlags,
		synopsis: "connect to the deployment and report",
		doc: "Reads the configuration as serve does, connects to each host of the deployment, " +
			"and reports\n" +
			"what the connection string means, what each host says and what was negotiated. If " +
			"there is a\n" +
			"credential, it logs in and reports as whom. Exits with 1 if the deployment cannot " +
			"be used.",
	},
	{
		name: "config", configured: true, run: showConfig,
		synopsis: "print the effective configuration",
		doc: "Prints the configuration that serve would use, as YAML, with the source of each " +
			"value.\n" +
			"Secrets are masked.",
	},
	{
		name: "key", args: []string{"new"}, run: newKey,
		synopsis: "make a key for handle.keys",
		doc: "Prints a new random key. Add it as the last line of the file that " +
			"--handle-keys-file names,\n" +
			"on all replicas. When all have read it, move it to the first line: from then on " +
			"it seals.\n" +
			"docs/operations.md has the steps.",
	},
	{
		name: "key", args: []string{"api", "new"}, run: newAPIKey, flags: apiKeyFlags,
		synopsis: "make an API key for a client",
		doc: "Prints a new API key, and its line for the file that --auth-api-keys-file names. " +
			"The line\n" +
			"has a hash of the key, so that nothing can print the key again: give it to the " +
			"client now.",
	},
	{
		name: "policy", args: []string{"test"}, operand: "FILE", run: testPolicy,
		synopsis: "run a table of requests against a policy",
		doc: "Reads a table (YAML) and the policy that it names, and checks what the policy does " +
			"with\n" +
			"each request. Exits with 1 if a row fails. docs/policy.md describes the table.",
	},
	{
		name: "policy", args: []string{"explain"}, operand: "FILE", run: explainPolicy,
		flags:    explainFlags,
		synopsis: "say which rule decides",
		doc: "Reads a policy, and prints what it decides about a call and by which rule, with " +
			"the limits\nthat apply.",
	},
	{
		name: "version", run: printVersion,
		synopsis: "print the version",
		doc:      "Prints the version of the gateway and of the Go that built it.",
	},
}

// usageError reports a wrong command line.
type usageError struct{ problem string }

func (e *usageError) Error() string { return e.problem }

// Run executes the command that args name and returns the process's exit code. Errors are lines on
// stderr.
func Run(args, environ []string, stdout, stderr io.Writer) int {
	err := run(args, environ, stdout, stderr)
	if err == nil {
		return exitOK
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		fmt.Fprintf(stderr, "mooring: %s\n", line)
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		fmt.Fprintln(stderr, "Try: mooring --help")
		return exitUsage
	}
	return exitError
}

func run(args, environ []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return &usageError{"which command? " + names()}
	}
	switch args[0] {
	case "help", "--help", "-h":
		return overview(stdout)
	case "--version":
		args = []string{"version"}
	}
	if c, ok := find(args); ok {
		return c.call(args[1:], environ, stdout, stderr)
	}
	return &usageError{fmt.Sprintf("unknown command %q: there are %s", args[0], names())}
}

// find returns the command that args name: of those with the first word, the one whose second word
// is there, too, else the first.
func find(args []string) (found command, ok bool) {
	for _, c := range commands {
		if c.name != args[0] {
			continue
		}
		if len(args) > 1 && len(c.args) > 0 && c.args[0] == args[1] {
			return c, true
		}
		if !ok {
			found, ok = c, true
		}
	}
	return found, ok
}

func (c command) call(args, environ []string, stdout, stderr io.Writer) error {
	flags := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	if c.configured {
		config.Flags(flags)
	}
	own := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	if c.flags != nil {
		c.flags(own)
		flags.AddFlagSet(own)
	}
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return c.help(own, stdout)
	}
	if err != nil {
		return &usageError{c.name + ": " + err.Error()}
	}
	words, operand := flags.Args(), ""
	if n := len(c.args); c.operand != "" && len(words) == n+1 {
		words, operand = words[:n], words[n]
	}
	if strings.Join(words, " ") != strings.Join(c.args, " ") ||
		(c.operand != "") != (operand != "") {
		// The words are not repeated: one may be a connection string with a password.
		return &usageError{fmt.Sprintf("%s: %d words that are not flags; usage: mooring %s",
			c.name, flags.NArg(), c.usage())}
	}
	return c.run(call{flags, operand, environ, stdout, stderr})
}

func (c command) usage() string {
	words := append([]string{c.name}, c.args...)
	if c.operand != "" {
		words = append(words, c.operand)
	}
	if c.configured || c.flags != nil {
		words = append(words, "[flags]")
	}
	return strings.Join(words, " ")
}

func (c command) help(own *pflag.FlagSet, w io.Writer) error {
	fmt.Fprintf(w, "Usage: mooring %s\n\n%s\n", c.usage(), c.doc)
	if own.HasFlags() {
		fmt.Fprintf(w, "\nFlags:\n%s", own.FlagUsages())
	}
	if !c.configured {
		return nil
	}
	fmt.Fprint(w,
		"\nOptions: flag, environment variable (default). A flag overrides the variable, and "+
			"the variable\n"+
			"overrides the configuration file. There --log-level is the key level below the key "+
			"log.\n\n")
	return config.Usage(w)
}

func overview(w io.Writer) error {
	fmt.Fprint(w,
		"Mooring serves a MongoDB deployment over gRPC and REST.\n\nUsage: mooring <command> "+
			"[flags]\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-12s %s\n", strings.Join(append([]string{c.name}, c.args...), " "),
			c.synopsis)
	}
	_, err := fmt.Fprint(w, "\nStart with:  mooring serve --uri mongodb://localhost:27017\n"+
		"All options: mooring serve --help\n")
	return err
}

func names() string {
	all := make([]string, len(commands))
	for i, c := range commands {
		all[i] = c.name
	}
	return strings.Join(slices.Compact(all), ", ")
}
