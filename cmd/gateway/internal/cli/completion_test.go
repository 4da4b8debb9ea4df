package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// completionRows are words of a command line, and what the last one can become.
var completionRows = []struct {
	name  string
	words []string
	want  string
}{
	{"the first word", []string{"c"}, "call check completion config count"},
	{"nothing yet", []string{""}, firstWords},
	{"nothing at all", nil, firstWords},
	{"the second word", []string{"key", ""}, "api new"},
	{"the third word", []string{"key", "api", ""}, "new"},
	{"a command after help", []string{"help", "pol"}, "policy"},
	{"a second word after help", []string{"help", "policy", "t"}, "test"},
	{"flags of options", []string{"serve", "--log-"}, "--log-driver --log-format --log-level --log-slow-request"},
	{"flags of the command and of options", []string{"check", "mongodb://h", "--timeo"}, "--timeout"},
	{"flags of a command of three words", []string{"key", "api", "new", "--"}, "--expires --help --principal"},
	{"flags after help", []string{"help", "--l"}, ""},
	{"flags of an unknown command", []string{"nosuch", "--l"}, ""},
	{"a value, for which the shell offers files", []string{"serve", "--config", "/et"}, ""},
}

const firstWords = "--help --version aggregate call check completion config count delete export " +
	"find health " +
	"help import insert key policy serve types update version watch"

func TestCompletions(t *testing.T) {
	for _, row := range completionRows {
		t.Run(row.name, func(t *testing.T) {
			code, stdout, stderr := run(nil, append([]string{"complete"}, row.words...)...)
			if got := strings.Join(strings.Fields(stdout), " "); code != 0 || got != row.want ||
				stderr != "" {
				t.Errorf("complete %q = %d, %q, %q; want %q", row.words, code, got, stderr,
					row.want)
			}
		})
	}
	if code, _, _ := run(nil, "completion", "tcsh"); code != 2 {
		t.Errorf("completion tcsh = %d, want 2", code)
	}
}

// writeProfiles writes profiles with these names, in the syntax of YAML, into a home.
func writeProfiles(t *testing.T, home string, names ...string) {
	t.Helper()
	folder := filepath.Join(home, ".config", "mooring")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	var text string
	for _, name := range names {
		text += name + ": {address: mongodb://h}\n"
	}
	err := os.WriteFile(filepath.Join(folder, "profiles.yaml"), []byte(text), 0o600)
	if err != nil {
		t.Fatal(err)
	}
}

// TestCompletionsOfNames checks that each name is one line, which a terminal can show, and that the
// last word may be as a shell quotes it.
func TestCompletionsOfNames(t *testing.T) {
	home := t.TempDir()
	writeProfiles(t, home, "plain", "two words", `"a\nb"`, `"a\e[2Jb"`, `"a\x9bb"`)
	for last, want := range map[string]string{
		"": "plain\ntwo words\n", "two": "two words\n", `two\ w`: "two words\n", "a": "",
	} {
		code, stdout, _ := run([]string{"HOME=" + home}, "complete", "find", "--profile", last)
		if code != 0 || stdout != want {
			t.Errorf("complete find --profile %s = %d, %q; want %q", last, code, stdout, want)
		}
	}
	if code, stdout, _ := run(nil, "complete", `ser\ve`, "--log-l"); stdout != "--log-level\n" {
		t.Errorf("after a quoted word: %d, %q", code, stdout)
	}
}

// TestShells has each shell that is installed read its script and complete a word. Bash takes the
// completions as source text: a name must come back from it as it is.
func TestShells(t *testing.T) {
	dir := t.TempDir()
	writeProfiles(t, dir, "'a b`x` $(y)*'", "ab")
	if err := os.Symlink(os.Args[0], filepath.Join(dir, "mooring")); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		shell  string
		script string // $1 is the file with the completion
		want   string
	}{
		{
			"bash", `source "$1"; COMP_WORDS=(mooring serve --log-); COMP_CWORD=2; _mooring; printf '%s\n' "${COMPREPLY[@]}"; complete -p mooring; COMP_WORDS=(mooring find --profile a); COMP_CWORD=3; _mooring; eval "printf '<%s>\n' ${COMPREPLY[*]}"`,
			"--log-driver --log-format --log-level --log-slow-request complete -o default -F _mooring mooring <a b`x` $(y)*> <ab>",
		},
		{
			"zsh", `compdef() { print -- compdef $@ }; compadd() { print -l -- "<"$^found">" }; source $1; words=(mooring serve --log-); CURRENT=3; _mooring; words=(mooring find --profile a); CURRENT=4; _mooring`,
			"compdef _mooring mooring <--log-driver> <--log-format> <--log-level> <--log-slow-request> <a b`x` $(y)*> <ab>",
		},
		{
			"fish", `source $argv[1]; complete -C 'mooring serve --log-'; complete -C 'mooring find --profile a'`,
			"--log-driver --log-format --log-level --log-slow-request a b`x` $(y)* ab",
		},
	} {
		t.Run(row.shell, func(t *testing.T) {
			shell, err := exec.LookPath(row.shell)
			if err != nil {
				t.Skipf("%s is not installed", row.shell)
			}
			code, script, _ := run(nil, "completion", row.shell)
			file := filepath.Join(dir, row.shell)
			if err := os.WriteFile(file, []byte(script), 0o600); code != 0 || err != nil {
				t.Fatalf("completion %s = %d, %v", row.shell, code, err)
			}
			args := []string{"-c", row.script, row.shell, file}
			if row.shell == "fish" {
				args = []string{"--no-config", "-c", row.script, file}
			}
			cmd := exec.Command(shell, args...)
			cmd.Env = []string{
				"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + dir, asGateway + "=1",
				"GOCOVERDIR=" + t.TempDir(), // else a binary with coverage warns
			}
			out, err := cmd.CombinedOutput()
			if got := strings.Join(strings.Fields(string(out)), " "); err != nil ||
				got != row.want {
				t.Errorf("%s = %q, %v; want %q", row.shell, got, err, row.want)
			}
		})
	}
}
