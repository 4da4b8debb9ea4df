package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/pflag"
)

// completeWord is the command that the scripts of printScript call. No list has it, since it is for
// shells.
const completeWord = "complete"

// The scripts ask the program for the words, so that they stay right when commands and flags
// change. Names of a deployment may be source text for a shell: zsh and fish quote what they
// insert, and bash does not.
const (
	bashScript = `# bash completion for mooring
_mooring() {
	local word
	COMPREPLY=()
	while IFS= read -r word; do
		printf -v word %q "$word"
		COMPREPLY+=("$word")
	done < <(mooring complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _mooring mooring
`
	zshScript = `#compdef mooring
_mooring() {
	local -a found
	found=(${(f)"$(mooring complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
	if (( $#found )); then compadd -a found; else _files; fi
}
if [[ $funcstack[1] == _mooring ]]; then _mooring "$@"; else compdef _mooring mooring; fi
`
	fishScript = `# fish completion for mooring
complete -c mooring -n 'test (count (commandline -opc)) -eq 1' -f
complete -c mooring -a '(mooring complete (commandline -opc)[2..-1] (commandline -ct))'
`
)

// printScript returns the function that runs the command completion for a shell.
func printScript(script string) func(call) error {
	return func(c call) error {
		_, err := io.WriteString(c.stdout, script)
		return err
	}
}

// complete writes what the last of words can become, one on each line, and returns the exit code.
func complete(words, environ []string, w io.Writer) int {
	for _, found := range completions(words, environ) {
		if _, err := fmt.Fprintln(w, found); err != nil {
			return exitError
		}
	}
	return exitOK
}

// completions returns the words that begin with the last of words and can stand there, sorted: the
// words of commands, the flags of the command that the words before it name, or what that command
// completes itself, such as a collection. Words may have backslashes, with which shells quote. A
// word with a control character is left out: it may be two lines, or change the terminal.
func completions(words, environ []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	plain := make([]string, len(words))
	for i, word := range words {
		plain[i] = strings.ReplaceAll(word, `\`, "")
	}
	before, last := plain[:len(plain)-1], plain[len(plain)-1]
	var all []string
	if strings.HasPrefix(last, "-") && len(before) > 0 {
		if c, err := find(before); err == nil {
			c.allFlags().VisitAll(func(f *pflag.Flag) { all = append(all, "--"+f.Name) })
			all = append(all, "--help")
		}
	} else if all = nextWords(before); len(before) > 0 {
		if c, err := find(before); err == nil && c.complete != nil {
			all = c.complete(append(slices.Clone(before[1:]), last), environ)
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(word string) bool {
		return !strings.HasPrefix(word, last) || strings.ContainsFunc(word, unicode.IsControl)
	})
}

// nextWords returns the words of commands that can follow these.
func nextWords(before []string) []string {
	var next []string
	if len(before) == 0 {
		next = append(next, "help", "--help", "--version")
	} else if before[0] == "help" {
		before = before[1:]
	}
	for i := range commands {
		all := append([]string{commands[i].name}, commands[i].args...)
		if len(all) > len(before) && slices.Equal(all[:len(before)], before) {
			next = append(next, all[len(before)])
		}
	}
	return next
}
