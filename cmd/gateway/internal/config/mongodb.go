package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/connstring"
)

// mongoOptions names the option with options of the connection string.
const mongoOptions = "mongodb.options"

// parseMongoOptions reads name=value, one per line. It fails for a name that connection strings
// do not have.
func parseMongoOptions(text string) (map[string][]string, error) {
	all := map[string][]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		if !ok {
			return nil, errors.New("each line must be name=value") // the line may be a secret
		}
		option, ok := findMongoOption(name)
		if !ok {
			return nil, fmt.Errorf("%q is not an option of connection strings", name)
		}
		all[option.Name] = append(all[option.Name], value)
	}
	return all, nil
}

func findMongoOption(name string) (connstring.Option, bool) {
	all := connstring.Options()
	i := slices.IndexFunc(all, func(o connstring.Option) bool {
		return strings.EqualFold(o.Name, name)
	})
	if i < 0 {
		return connstring.Option{}, false
	}
	return all[i], true
}

// shownMongoOptions returns what parseMongoOptions reads, without the secrets.
func shownMongoOptions(c *Config) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(c.mongoOptions)) {
		option, _ := findMongoOption(name)
		for _, value := range c.mongoOptions[name] {
			if option.Secret() {
				value = mask
			}
			lines = append(lines, name+"="+value)
		}
	}
	return strings.Join(lines, "\n")
}

// mongoLines returns one entry of the file's mapping as lines, one for each item of a list.
func mongoLines(name, text string) string {
	var b strings.Builder
	for value := range strings.SplitSeq(text, "\n") {
		b.WriteString(name + "=" + value + "\n")
	}
	return b.String()
}
