// Package shell contains the commands for people who work with data: find, insert, watch and the
// others. Each makes calls of the API, at a gateway, or at one within the process that has no
// listener and is connected to a deployment. package cli parses their flags.
package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"
	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/cmd/gateway/internal/render"
	"github.com/mooringdb/mooring/cmd/gateway/internal/transfer"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// Command describes a command.
type Command struct {
	Name string
	// Operands are the words of the usage line that are not flags, such as "NAMESPACE [FILTER]".
	Operands, Synopsis, Doc string
	// Flags adds the command's own flags.
	Flags func(*pflag.FlagSet)
	// run runs the command.
	run func(context.Context, *session) error
	// prints says that the command writes documents, and takes the flags of that.
	prints bool
}

// Commands returns all commands.
func Commands() []*Command {
	return []*Command{
		types,
		find, aggregate, count, insert, update, remove, call, watch, importCommand, export,
	}
}

// Invocation holds what a command gets from the command line and the process.
type Invocation struct {
	Flags          *pflag.FlagSet // parsed
	Operands       []string
	Environ        []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// UsageError reports a wrong command line.
type UsageError struct{ Problem string }

// Error returns the problem.
func (e *UsageError) Error() string { return e.Problem }

func usage(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// ErrInterrupted is the error of a command that a signal has ended.
var ErrInterrupted = errors.New("interrupted")

// AllFlags adds the flags of a command: its own, and those of connections and of output.
func (c *Command) AllFlags(flags *pflag.FlagSet) {
	if c.Flags != nil {
		c.Flags(flags)
	}
	connectionFlags(flags)
	if c.prints {
		outputFlags(flags)
	}
}

// Run runs a command. The first SIGINT or SIGTERM ends it in order, and a second one at once. If
// the reader of standard output is gone, that is not an error.
func (c *Command) Run(in Invocation) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the next signal has its usual effect
	// A pipe that breaks is an error of write, so that calls and cursors end in order.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)

	s := &session{Invocation: in}
	done := make(chan error, 1) // one result, so that run never waits for a reader
	go func() {
		err := c.run(ctx, s)
		s.close()
		done <- err
	}()
	err := wait(ctx, done)
	switch {
	case isGone(err):
		return nil
	case ctx.Err() == nil || err == nil:
		return describe(err, s.address)
	}
	if f := in.Flags.Lookup("continue"); f != nil && f.Value.String() != "" {
		return fmt.Errorf("%w: the same command continues", ErrInterrupted)
	}
	return ErrInterrupted
}

// isGone reports whether an error says that the reader of a pipe is gone. Errors of files have
// their own type: a connection to a deployment may break with the same code.
func isGone(err error) bool {
	file, ok := errors.AsType[*fs.PathError](err)
	return ok && errors.Is(file, syscall.EPIPE)
}

// grace is how long a command has to end after a signal. A call within the process goes on until
// the server has answered; it ends with the process then.
const grace = time.Second

// wait returns the result of a command, or ErrInterrupted if it does not end after a signal.
func wait(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return ErrInterrupted
	}
}

// session holds the state of one command.
type session struct {
	Invocation

	address string
	// leads says where the address leads, without user, password and options.
	leads   string
	closers []func()
	options []grpc.DialOption // of a connection over the network, beside its own
}

// text returns the value of a flag that has one.
func (s *session) text(name string) string {
	v, err := s.Flags.GetString(name)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return v
}

func (s *session) isSet(name string) bool {
	v, err := s.Flags.GetBool(name)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return v
}

func (s *session) number(name string) int64 {
	v, err := s.Flags.GetInt64(name)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return v
}

// operand returns a word, or "" if it is not given.
func (s *session) operand(i int) string {
	if i < len(s.Operands) {
		return s.Operands[i]
	}
	return ""
}

func (s *session) close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}

func outputFlags(flags *pflag.FlagSet) {
	outputFlag(flags)
	flags.String("fields", "", "columns of csv, such as name,address.city,age.int32() (default "+
		"the fields of the first documents)")
	flags.Bool("canonical", false, "write canonical Extended JSON, which keeps all types")
}

// outputFlag adds the flag of commands that print counts only.
func outputFlag(flags *pflag.FlagSet) {
	flags.StringP("output", "o", "", "form of the output: "+render.Formats+
		" (a table on a terminal, else ndjson)")
}

// renderer returns the writer of the command's documents.
func (s *session) renderer() (render.Writer, error) {
	o := render.Options{Format: render.Format(s.text("output")), Mode: extjson.Relaxed}
	width, isTerminal := terminal(s.Stdout)
	o.Width = width
	if s.Flags.Lookup("fields") != nil { // a command that prints counts only has neither
		var err error
		if o.Columns, err = render.Columns(s.text("fields")); err != nil {
			return nil, usage("--fields: %v", err)
		}
		o.Mode = s.mode()
	}
	switch {
	case o.Format != "":
	case isTerminal:
		o.Format = render.Table
	default:
		o.Format = render.NDJSON
	}
	w, err := render.New(s.Stdout, o)
	if err != nil {
		return nil, usage("--output: %v", err)
	}
	return w, nil
}

func (s *session) mode() extjson.Mode {
	if s.isSet("canonical") {
		return extjson.Canonical
	}
	return extjson.Relaxed
}

// print writes one document.
func (s *session) print(doc bson.Raw) error {
	w, err := s.renderer()
	if err != nil {
		return err
	}
	if err := w.Write(doc); err != nil {
		return err
	}
	return w.Close()
}

// terminal returns the width of the terminal that w is; 0: unknown.
func terminal(w any) (width int, ok bool) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		width = 0
	}
	return width, true
}

// describe returns an error in words for people.
func describe(err error, address string) error {
	failed, ok := errors.AsType[*client.Error](err)
	if !ok {
		return err
	}
	if failed.Reason == "" {
		return unanswered(failed, address)
	}
	text := failed.Reason + ": " + failed.Message
	if failed.Field != "" {
		text += " (field " + failed.Field + ")"
	}
	if failed.RequestID != "" {
		text += " (request " + failed.RequestID + ")"
	}
	text = render.Plain(text)
	for _, v := range failed.Server.GetViolations() {
		text += "\n" + render.Plain(transfer.Violation(v))
	}
	return errors.New(text)
}
