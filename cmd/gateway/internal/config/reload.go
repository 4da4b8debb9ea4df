package config

import (
	"slices"
	"strings"
)

// Again reads all sources again, as Load has read them, but for the configuration file, whose text
// the caller has read. It changes nothing of c.
func (c *Config) Again(text string) (*Config, error) {
	return load(c.flags, c.environ, func(string) (string, error) { return text, nil })
}

// Change describes an option whose value has changed in its source. From and To are as they may be
// shown, and empty for a secret.
type Change struct {
	Option, From, To string
	// Restart is true if the new value takes effect only in a gateway that is started with it.
	Restart bool
}

// Adopt returns c with the values of next for the options that can change while the gateway runs,
// and what has changed. What the files of secrets hold does not count: they are watched on their
// own.
func (c *Config) Adopt(next *Config) (*Config, []Change) {
	adopted := *c
	adopted.values = slices.Clone(c.values)
	adopted.File, adopted.FileSum = next.File, next.FileSum
	var changes []Change
	for i, v := range next.values {
		old := c.values[i]
		if v.file == old.file && (v.file != "" || v.text == old.text) {
			continue
		}
		change := Change{Option: v.option.Name, Restart: !v.reloads(old)}
		if !v.option.Secret {
			change.From, change.To = old.text, v.text
		}
		changes = append(changes, change)
		if change.Restart {
			continue
		}
		if err := v.option.parse(&adopted, v.text); err != nil {
			panic("bug: config: a value that was read cannot be read: " + err.Error())
		}
		adopted.values[i] = v
	}
	adopted.complete()
	return &adopted, changes
}

// reloads reports whether a value can take the place of another one. Keys can only be replaced by
// others: whether there are any decides what the gateway is made of.
func (v value) reloads(old value) bool {
	if v.option.Secret && (v.text == "" || old.text == "" || v.file != "" || old.file != "") {
		return false
	}
	return v.option.Reload
}

// Files returns the names of the options that name a file, or are secrets, which can be in a file.
func Files() []string {
	var names []string
	for _, o := range options {
		if o.Secret || strings.HasPrefix(o.Kind, "path") {
			names = append(names, o.Name)
		}
	}
	return names
}

// Reloadable returns the names of the options that can change while the gateway runs.
func Reloadable() []string {
	var names []string
	for _, o := range options {
		if o.Reload {
			names = append(names, o.Name)
		}
	}
	return names
}
