// Command skips runs go test -json, prints what go test itself would print, then how many tests
// passed, failed and were skipped, with the reason for each skip. It exits 1 if the command fails,
// if no test was run, if a skip has a reason that is not in the table in rules.go, or if what a
// skipped test needs is there.
//
//	skips -log FILE go test -count=1 -json ./...
//	skips -sum FILE
//
// With -log it appends the result to FILE. With -sum it runs nothing and prints the results of all
// runs in FILE; a test that was skipped in one run and passed in another counts as run. Its last
// lines name what was not run.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	log := flag.String("log", "", "append the result to this file")
	sum := flag.String("sum", "", "print the results of all runs in this file")
	flag.Parse()
	err := errors.New("usage: skips [-log FILE] go test -json …, or skips -sum FILE")
	switch {
	case *sum != "" && flag.NArg() == 0:
		err = total(os.Stdout, *sum)
	case flag.NArg() > 0:
		err = run(os.Stdout, *log, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "skips:", err)
		os.Exit(1)
	}
}

// run runs a command that writes events of go test -json, and judges what they say.
func run(out io.Writer, log string, command []string) error {
	// The command gets Ctrl-C as well, and ends by itself.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r, readErr := read(events, out)
	_, _ = io.Copy(io.Discard, events) // so that a command whose line cannot be read ends
	waitErr := cmd.Wait()
	r.Name = name(command)
	judged, problems := judge(r.Skips, machine())
	r.Skips = judged
	r.print(out, problems)
	if len(problems) > 0 {
		err = fmt.Errorf("%d tests were skipped without a reason that holds", len(problems))
	}
	if r.Passed+r.Failed == 0 {
		err = errors.Join(err, errors.New("no test was run"))
	}
	if log != "" {
		err = errors.Join(err, r.append(log))
	}
	return errors.Join(waitErr, readErr, err)
}

// name says what a run was: the directory, what was tested, and on which server.
func name(command []string) string {
	var parts []string
	if dir, err := os.Getwd(); err == nil {
		parts = append(parts, filepath.Base(dir)+":")
	}
	for _, arg := range command {
		if strings.HasPrefix(arg, "./") {
			parts = append(parts, arg)
		}
	}
	if os.Getenv(server) != "" {
		parts = append(parts, "("+server+")")
	}
	return strings.Join(parts, " ")
}

// append writes the result as a line of a file.
func (r result) append(log string) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// total prints the results that a file has.
func total(out io.Writer, log string) error {
	f, err := os.Open(log)
	if err != nil {
		return err
	}
	defer f.Close()
	var runs []result
	lines := bufio.NewReader(f)
	for decoder := json.NewDecoder(lines); ; {
		var r result
		switch err := decoder.Decode(&r); {
		case errors.Is(err, io.EOF):
			summarize(out, runs)
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", log, err)
		}
		runs = append(runs, r)
	}
}
