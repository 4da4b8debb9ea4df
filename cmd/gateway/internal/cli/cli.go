// Package cli contains the gateway's command line: its commands, their help and their exit codes.
// config reads the settings, and app runs the gateway.
//
// It does not use cobra, whose completion for bash needs the package bash-completion and fails
// without it, and which exits with 0 for a command that does not exist after help.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/shell"
	"github.com/mooringdb/mooring/service/spelling"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1 // the command failed
	exitUsage = 2 // the command line is wrong

	exitInterrupted = 130 // SIGINT or SIGTERM has ended a command that works with data
)

// command describes one word after the program's name.
type command struct {
	name, synopsis string
	args           []string // required words besides flags, for the usage line
	operands       string   // further words of the usage line: FILE, [FILTER], DOCUMENT…
	takesURI       bool     // the operand is the connection string
	doc            string
	configured     bool                 // takes the options of config
	flags          func(*pflag.FlagSet) // further flags, if any
	run            func(call) error
	complete       func(words, environ []string) []string // the last of words; nil: nothing
}

// dialer connects to an address, as the method of net.Dialer does.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// surroundings holds what a command gets from the process.
type surroundings struct {
	environ        []string
	stdin          io.Reader
	stdout, stderr io.Writer
	dial           dialer // of health
}

// call holds what a command works with.
type call struct {
	surroundings
	flags    *pflag.FlagSet
	operands []string // the words that command.operands names
}

var commands = slices.Concat(gatewayCommands, dataCommands())

var gatewayCommands = []command{
	{
		name: "serve", configured: true, operands: "[URI]", takesURI: true, run: serve,
		synopsis: "run the gateway",
		doc: "Runs the gateway until SIGTERM or SIGINT. Requests in flight may then finish " +
			"within\n" +
			"--drain-timeout. The gateway starts even if MongoDB cannot be reached; /readyz is " +
			"503 until\n" +
			"it can be reached and lets the gateway log in.",
	},
	{
		name: "check", configured: true, operands: "[URI]", takesURI: true,
		run: checkDeployment, flags: checkFlags,
		synopsis: "connect to the deployment and report",
		doc: "Reads the configuration as serve does, connects to each host of the deployment, " +
			"and reports\n" +
			"what the connection string means, what each host says and what was negotiated. If " +
			"there is a\n" +
			"credential, it logs in and reports as whom. Exits with 1 if the deployment cannot " +
			"be used.",
	},
	{
		name: "health", run: checkHealth, flags: healthFlags,
		synopsis: "ask a running gateway whether it is ready",
		doc: "Asks a running gateway at the addresses that clients use: /readyz at --rest, and " +
			"the service\n" +
			"grpc.health.v1.Health at --grpc, or one of the two. It needs no credential. It asks " +
			"again until\n" +
			"the gateway is ready or --timeout has passed, and then exits with 1.",
	},
	{
		name: "config", configured: true, run: showConfig,
		synopsis: "print the effective configuration",
		doc: "Prints the configuration that serve would use, as YAML, with the source of each " +
			"value.\n" +
			"Secrets are masked.",
	},
	{
		name: "config", args: []string{"schema"}, run: showSchema,
		synopsis: "print the JSON Schema of the configuration file",
		doc: "Prints the JSON Schema of the configuration file, for editors and for checks " +
			"before a rollout.",
	},
	{
		name: "config", args: []string{"check"}, configured: true, run: checkConfig,
		synopsis: "check the configuration without starting",
		doc: "Reads the file, the variables, the flags and all files that they name, as serve " +
			"does, and\n" +
			"prints what serve would use. It opens no socket; mooring check asks the deployment. " +
			"Run it as\n" +
			"the user of serve, who must be able to write the files that serve writes. Warnings " +
			"are on\n" +
			"standard error. Exits with 1 if serve would not start, with 2 if a flag is to blame.",
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
		name: "policy", args: []string{"test"}, operands: "FILE", run: testPolicy,
		synopsis: "run a table of requests against a policy",
		doc: "Reads a table (YAML) and the policy that it names, and checks what the policy does " +
			"with\n" +
			"each request. Exits with 1 if a row fails. docs/policy.md describes the table.",
	},
	{
		name: "policy", args: []string{"explain"}, operands: "FILE", run: explainPolicy,
		flags:    explainFlags,
		synopsis: "say which rule decides",
		doc: "Reads a policy, and prints what it decides about a call and by which rule, with " +
			"the limits\nthat apply.",
	},
	{
		name: "version", run: printVersion,
		synopsis: "print the version",
		doc:      "Prints the version of the gateway, its commit, and the Go that built it.",
	},
	{
		name: "completion", args: []string{"bash"}, run: printScript(bashScript),
		synopsis: "complete commands and flags in bash",
		doc: "Prints a script for bash. Put this line into ~/.bashrc:\n\n" +
			"  source <(mooring completion bash)",
	},
	{
		name: "completion", args: []string{"zsh"}, run: printScript(zshScript),
		synopsis: "complete commands and flags in zsh",
		doc: "Prints a script for zsh. Put this line into ~/.zshrc, after compinit:\n\n" +
			"  source <(mooring completion zsh)",
	},
	{
		name: "completion", args: []string{"fish"}, run: printScript(fishScript),
		synopsis: "complete commands and flags in fish",
		doc: "Prints a script for fish. Run once:\n\n" +
			"  mooring completion fish > ~/.config/fish/completions/mooring.fish",
	},
}

// usageError reports a wrong command line.
type usageError struct{ problem string }

func (e *usageError) Error() string { return e.problem }

// Run executes the command that args name and returns the process's exit code. Errors are lines on
// stderr.
func Run(args, environ []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return run(args, surroundings{environ, stdin, stdout, stderr, (&net.Dialer{}).DialContext})
}

func run(args []string, s surroundings) int {
	if len(args) > 0 && args[0] == completeWord {
		return complete(args[1:], s.environ, s.stdout)
	}
	c, err := choose(args, s.stdout)
	if err == nil && c != nil {
		err = c.call(args[1:], s)
	}
	if err == nil {
		return exitOK
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		fmt.Fprintf(s.stderr, "mooring: %s\n", line)
	}
	switch {
	case errors.Is(err, shell.ErrInterrupted):
		return exitInterrupted
	case !isUsage(err):
		return exitError
	}
	help := "mooring --help"
	if c != nil {
		help = "mooring " + c.words() + " --help"
	}
	fmt.Fprintln(s.stderr, "Try:", help)
	return exitUsage
}

// isUsage reports whether the command line is to blame: a word, a flag, the value of a flag, or a
// connection string that is missing.
func isUsage(err error) bool {
	if _, ok := errors.AsType[*usageError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*shell.UsageError](err); ok {
		return true
	}
	option, ok := errors.AsType[*config.Error](err)
	return ok && option.OnCommandLine()
}

// choose returns the command that args name, or nil if args ask for help, which it then writes.
func choose(args []string, stdout io.Writer) (*command, error) {
	if len(args) == 0 {
		return nil, &usageError{"a command is missing: " + names()}
	}
	switch args[0] {
	case "--help", "-h":
		return nil, overview(stdout)
	case "--version":
		args = []string{"version"}
	case "help":
		if len(args) == 1 {
			return nil, overview(stdout)
		}
		c, err := find(args[1:])
		if err != nil {
			return nil, err
		}
		return nil, c.help(c.ownFlags(), stdout)
	}
	return find(args)
}

// find returns the command that args name: of those with the first word, the one whose second word
// is there, too, else the first.
func find(args []string) (*command, error) {
	var found *command
	for i := range commands {
		c := &commands[i]
		if c.name != args[0] {
			continue
		}
		if len(args) > 1 && len(c.args) > 0 && c.args[0] == args[1] {
			return c, nil
		}
		if found == nil {
			found = c
		}
	}
	if found == nil {
		if like := spelling.Nearest(args[0], slices.Values(allNames())); like != "" {
			return nil, &usageError{fmt.Sprintf("unknown command %q: did you mean %s?", args[0],
				like)}
		}
		return nil, &usageError{fmt.Sprintf("unknown command %q; the commands are %s", args[0],
			names())}
	}
	return found, nil
}

func (c *command) ownFlags() *pflag.FlagSet {
	own := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	if c.flags != nil {
		c.flags(own)
	}
	return own
}

// allFlags returns the command's own flags and, if it is configured, those of the options.
func (c *command) allFlags() *pflag.FlagSet {
	flags := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	if c.configured {
		config.Flags(flags)
	}
	flags.AddFlagSet(c.ownFlags())
	return flags
}

func (c *command) call(args []string, s surroundings) error {
	flags := c.allFlags()
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return c.help(c.ownFlags(), s.stdout)
	}
	if err != nil {
		return &usageError{c.name + ": " + err.Error() + likeFlag(flags, err)}
	}
	operands, err := c.takeWords(flags)
	if err != nil {
		return err
	}
	return c.run(call{s, flags, operands})
}

// bounds returns how many operands there are at least, and at most.
func (c *command) bounds() (least, most int) {
	for _, word := range strings.Fields(c.operands) {
		if most++; !strings.HasPrefix(word, "[") {
			least++
		}
		if strings.HasSuffix(word, "…") {
			most = math.MaxInt
		}
	}
	return least, most
}

// takeWords checks the words that are not flags, and returns the operands. A connection string
// becomes the value of --uri. Errors do not repeat words: one may contain a password.
func (c *command) takeWords(flags *pflag.FlagSet) (operands []string, err error) {
	words, n := flags.Args(), len(c.args)
	least, most := c.bounds()
	if given := len(words) - n; given < least || given > most || !slices.Equal(words[:n], c.args) {
		return nil, c.wrongWords(words)
	}
	operands = words[n:]
	if !c.takesURI || len(operands) == 0 {
		return operands, nil
	}
	uri := operands[0]
	switch {
	case !strings.HasPrefix(uri, "mongodb://") && !strings.HasPrefix(uri, "mongodb+srv://"):
		return nil, &usageError{c.name + ": the argument is not a connection string, which " +
			"begins with mongodb:// or mongodb+srv://"}
	case flags.Changed("uri") || flags.Changed("uri-file"):
		return nil, &usageError{c.name + ": the connection string is set twice, by an argument " +
			"and by a flag"}
	}
	return nil, flags.Set("uri", uri)
}

// words returns the name of the command with its second words.
func (c *command) words() string {
	return strings.Join(append([]string{c.name}, c.args...), " ")
}

func (c *command) usage() string {
	words := c.words()
	if c.operands != "" {
		words += " " + c.operands
	}
	if c.configured || c.flags != nil {
		words += " [flags]"
	}
	return words
}

// help writes what --help shows. The options are many: serve lists them, and other commands say
// where they are.
func (c *command) help(own *pflag.FlagSet, w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: mooring %s\n\n%s\n", c.usage(), c.doc)
	if c.takesURI {
		b.WriteString("\nURI is the connection string, the same as --uri. Every user of the " +
			"machine can read a\ncommand line: give a password by --mongodb-password-file or " +
			"--uri-file instead.\n")
	}
	if own.HasFlags() {
		fmt.Fprintf(&b, "\nFlags:\n%s", own.FlagUsagesWrapped(100))
	}
	switch {
	case !c.configured:
	case c.name != "serve":
		b.WriteString("\nIt also takes the options of serve: see mooring serve --help\n")
	default:
		b.WriteString("\nOptions: flag, environment variable (default). A flag overrides the " +
			"variable, and the variable\noverrides the configuration file. There --log-level " +
			"is the key level below the key log. The items of a list are\nseparated by commas. " +
			"A principal gets up to 80% of what principals share, and less while others use " +
			"it.\n\n")
		if err := config.Usage(&b); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func overview(w io.Writer) error {
	var b strings.Builder
	b.WriteString("Mooring serves a MongoDB deployment over gRPC and REST.\n\n" +
		"Usage: mooring <command> [flags]\n")
	for _, group := range []struct {
		heading  string
		commands []command
	}{
		{"The gateway:", gatewayCommands},
		{"Data, of a gateway or of a deployment:", dataCommands()},
	} {
		fmt.Fprintf(&b, "\n%s\n", group.heading)
		for i := range group.commands {
			c := &group.commands[i]
			fmt.Fprintf(&b, "  %-16s %s\n", c.words(), c.synopsis)
		}
	}
	b.WriteString("\nStart with:     mooring serve mongodb://localhost:27017\n" +
		"About one:      mooring help serve\n" +
		"Exit codes:     1 the command failed, 2 the command line is wrong, 130 interrupted\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func names() string { return strings.Join(allNames(), ", ") }

// allNames returns the first words of all commands.
func allNames() []string {
	all := make([]string, len(commands))
	for i := range commands {
		all[i] = commands[i].name
	}
	return slices.Compact(all)
}

// likeFlag returns a question for the flag that was probably meant; empty: none is like it.
func likeFlag(flags *pflag.FlagSet, err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return ""
	}
	all := []string{"help"}
	flags.VisitAll(func(f *pflag.Flag) { all = append(all, f.Name) })
	// A letter alone is like nothing.
	if len(unknown.GetSpecifiedName()) < 2 {
		return ""
	}
	like := spelling.Nearest(unknown.GetSpecifiedName(), slices.Values(all))
	if like == "" {
		return ""
	}
	return ": did you mean --" + like + "?"
}

// siblings returns the commands that begin with the same word and have a second one.
func (c *command) siblings() (all []string) {
	for i := range commands {
		if other := &commands[i]; other.name == c.name && len(other.args) > 0 {
			all = append(all, other.words())
		}
	}
	return all
}

// wrongWords returns the error for words that do not go with the command. It does not repeat them:
// one may contain a password.
func (c *command) wrongWords(words []string) error {
	if all := c.siblings(); len(all) > 0 && len(words) > 0 && !slices.Contains(c.args, words[0]) {
		like := spelling.Nearest(c.name+" "+words[0], slices.Values(all))
		switch {
		case like != "":
			return &usageError{"there is no such command: did you mean " + like + "?"}
		case len(c.args) > 0:
			return &usageError{"there is no such command; the commands are " +
				strings.Join(all, ", ")}
		}
	}
	return &usageError{fmt.Sprintf("%s: %s; usage: mooring %s", c.name, arguments(len(words)),
		c.usage())}
}

func arguments(n int) string {
	if n == 1 {
		return "1 argument that is not a flag"
	}
	return fmt.Sprintf("%d arguments that are not flags", n)
}
