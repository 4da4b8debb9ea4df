package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/mooringdb/mooring/cmd/gateway/internal/watch"
	"github.com/mooringdb/mooring/service/spelling"
)

// layer holds the settings of one source: by option, the text and its exact place.
type layer map[string]setting

type setting struct {
	text, source string
	file         string // the file with the text, for a secret in its own file
}

// value holds the result for an option.
type value struct {
	option option
	setting
}

const fromDefault = "default"

// Flags declares a flag for every option. Flags accept any text; Load checks it.
func Flags(flags *pflag.FlagSet) {
	for _, row := range options {
		for _, o := range row.withFile() {
			flags.String(o.flag(), "", o.Doc)
			if o.Bool {
				flags.Lookup(o.flag()).NoOptDefVal = "true"
			}
		}
	}
}

// Load reads all sources, in order of precedence: flags that were given, environment variables
// that are not empty, the configuration file, defaults. Its error joins an *Error for each option
// that cannot be used.
func Load(flags *pflag.FlagSet, environ []string) (*Config, error) {
	return load(flags, environ, watch.Read)
}

// load does what Load does. read reads the configuration file.
func load(
	flags *pflag.FlagSet, environ []string, read func(path string) (string, error),
) (*Config, error) {
	c := &Config{flags: flags, environ: environ}
	given, err := fromFlags(flags)
	if err != nil {
		return nil, err
	}
	variables, unknown, err := fromEnviron(environ)
	if err != nil {
		return nil, err
	}
	for _, name := range unknown {
		c.Warnings = append(c.Warnings, "unknown environment variable "+name+" has no effect"+
			suggestVariable(name))
	}
	layers := []layer{given, variables}
	path := cmp.Or(given["config"].text, variables["config"].text)
	if path != "" {
		text, err := read(path)
		if err != nil {
			return nil, fmt.Errorf("configuration file: %w", err)
		}
		c.File, c.FileSum = path, watch.Sum(text)
		written, err := fromFile(path, text)
		if err != nil {
			return nil, err
		}
		layers = append(layers, written)
		c.warnOverridden(given, variables, written)
	}

	var errs []error
	for _, o := range options {
		s, err := o.resolve(layers, c.CheckSecretFile)
		err = cmp.Or(err, c.mongoUser.note(o.Name, s))
		if err == nil {
			c.values = append(c.values, value{o, s})
			err = o.parse(c, s.text)
			err = cmp.Or(err, c.noteKeys(o.Name, s))
			if err == nil && o.Secret && s.source == path && o.holdsSecret(c, s) {
				err = c.CheckSecretFile(path)
			}
			if s.source == fromDefault {
				s.source = ""
			}
		}
		if err != nil {
			errs = append(errs, &Error{Option: o.Name, Source: s.source, Problem: err.Error()})
		}
	}
	if len(errs) == 0 {
		errs = append(errs, c.check())
	}
	return c, errors.Join(errs...)
}

// warnOverridden warns of addresses of the file that a variable overrides: the image has variables
// that who mounts a file may not know of.
func (c *Config) warnOverridden(given, variables, written layer) {
	for _, name := range []string{"grpc.address", "rest.address"} {
		_, byFlag := given[name]
		used, byVariable := variables[name]
		unused, byFile := written[name]
		if !byFlag && byVariable && byFile && used.text != unused.text {
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s is %s in %s, but %s overrides it with "+
				"%s: an empty variable leaves it to the file", name, unused.text, unused.source,
				used.source, used.text))
		}
	}
}

// noteKeys records the source of keys that may be in a file. If a source is given, it must not be
// empty.
func (c *Config) noteKeys(option string, s setting) error {
	n := 1
	switch option {
	case handleKeys:
		c.HandleKeysFile, c.HandleKeysSum = s.file, SumHandleKeys([]byte(s.text))
		n = len(c.HandleKeys)
	case idempotencyKey:
		c.IdempotencyKeyFile, c.IdempotencyKeySum = s.file, SumHandleKeys([]byte(s.text))
		n = c.Idempotency.Len()
	case apiKeys:
		c.Auth.APIKeysFile, c.Auth.APIKeysSum = s.file, SumHandleKeys([]byte(s.text))
		if c.Auth.APIKeys == nil {
			n = 0
		}
	}
	switch {
	case n > 0:
		return nil
	case s.file != "":
		return errNoKey
	case option == apiKeys && s.source != fromDefault:
		return errEmptyKey
	}
	return nil
}

// holdsSecret reports whether the text of an option is secret, and not only an option that may be.
func (o option) holdsSecret(c *Config, s setting) bool {
	switch {
	case s.text == "" || o.Name == mongoUsername:
		return false
	case o.shown != nil:
		return strings.Contains(o.shown(c), mask)
	}
	return true
}

// resolve returns the setting of the first layer that has the option. check refuses files with
// secrets.
func (o option) resolve(layers []layer, check func(path string) error) (setting, error) {
	for _, l := range layers {
		s, direct := l[o.Name]
		path, indirect := l[o.Name+fileSuffix]
		indirect = indirect && o.Secret
		switch {
		case direct && indirect:
			return s, fmt.Errorf("is also set by %s: remove one of the two", path.source)
		case direct:
			return s, nil
		case indirect:
			text, err := watch.Read(path.text)
			err = cmp.Or(err, check(path.text))
			return setting{text, path.source + ": " + path.text, path.text}, err
		}
	}
	return setting{text: o.Default, source: fromDefault}, nil
}

func fromFlags(flags *pflag.FlagSet) (layer, error) {
	k := koanf.New(".")
	l := layer{}
	provider := posflag.ProviderWithFlag(flags, ".", nil, func(f *pflag.Flag) (string, any) {
		for _, row := range options {
			for _, o := range row.withFile() {
				if f.Changed && o.flag() == f.Name {
					l[o.Name] = setting{source: "--" + f.Name}
					return o.Name, f.Value.String()
				}
			}
		}
		return "", nil
	})
	if err := k.Load(provider, nil); err != nil {
		return nil, fmt.Errorf("flags: %w", err)
	}
	return l.fill(k), nil
}

// clientVariables are the variables of the commands for data: see package profile.
var clientVariables = []string{"MOORING_API_KEY", "MOORING_PROFILE"}

func fromEnviron(environ []string) (l layer, unknown []string, err error) {
	k := koanf.New(".")
	l = layer{}
	provider := env.Provider(".", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, text string) (string, any) {
			for _, row := range options {
				for _, o := range row.withFile() {
					switch {
					case o.env() != name:
					case text == "":
						return "", nil
					default:
						l[o.Name] = setting{source: name}
						return o.Name, text
					}
				}
			}
			if !slices.Contains(clientVariables, name) {
				unknown = append(unknown, name)
			}
			return "", nil
		},
	})
	if err := k.Load(provider, nil); err != nil {
		return nil, nil, fmt.Errorf("environment: %w", err)
	}
	slices.Sort(unknown)
	return l.fill(k), unknown, nil
}

func fromFile(path, content string) (layer, error) {
	k := koanf.New(".")
	if err := k.Load(yamlFile{path, content}, yaml.Parser()); err != nil {
		text := strings.Join(strings.Fields(err.Error()), " ")
		return nil, fmt.Errorf("configuration file: %s",
			strings.Replace(text, "yaml:", path+":", 1))
	}
	l := layer{}
	var errs []error
	for _, key := range k.Keys() {
		text, err := scalar(k.Get(key))
		name, isMongo := strings.CutPrefix(key, mongoOptions+".")
		switch {
		case isMongo && err == nil:
			if text != "" {
				l[mongoOptions] = setting{
					text: l[mongoOptions].text + mongoLines(name, text), source: path,
				}
			}
		case isGroup(key) && text == "" && err == nil:
			// An empty group.
		case !isMongo && !inFile(key):
			errs = append(errs, &Error{
				Option: key, Source: path, Problem: "is unknown" + suggest(key),
			})
		case err != nil:
			errs = append(errs, &Error{Option: key, Source: path, Problem: err.Error()})
		case text != "":
			l[key] = setting{text: text, source: path}
		}
	}
	return l, errors.Join(errs...)
}

// yamlFile holds a file with one YAML document.
type yamlFile struct{ path, text string }

var _ koanf.Provider = yamlFile{}

// ReadBytes returns the text of the file.
func (f yamlFile) ReadBytes() ([]byte, error) {
	documents := yamlv3.NewDecoder(strings.NewReader(f.text))
	var first, second yamlv3.Node
	if documents.Decode(&first) == nil && documents.Decode(&second) == nil {
		return nil, fmt.Errorf("%s has more than one YAML document: only one is allowed",
			f.path)
	}
	return []byte(f.text), nil
}

// Read returns an error: koanf uses ReadBytes, because the text has a parser.
func (yamlFile) Read() (map[string]any, error) { return nil, errors.ErrUnsupported }

// scalar returns the text of a YAML value: of a list its items, one per line; of null nothing.
func scalar(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case []any:
		lines := make([]string, len(v))
		for i, item := range v {
			line, err := scalar(item)
			if err != nil {
				return "", err
			}
			lines[i] = line
		}
		return strings.Join(lines, "\n"), nil
	case float64: // a large integer that went through JSON
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case string, bool, int, int64, uint64:
		return fmt.Sprint(v), nil
	case map[string]any:
		if len(v) == 0 {
			return "", nil
		}
	}
	return "", errors.New("must be a string, a number, a boolean or a list of these")
}

// fill adds the texts that koanf has read.
func (l layer) fill(k *koanf.Koanf) layer {
	for name, s := range l {
		l[name] = setting{text: k.String(name), source: s.source}
	}
	return l
}

// inFile reports whether the file may have that key.
func inFile(key string) bool {
	for _, row := range options {
		for _, o := range row.withFile() {
			if o.Name == key {
				return !row.NoFile
			}
		}
	}
	return false
}

// isGroup reports whether the file has keys below that one.
func isGroup(key string) bool {
	return slices.ContainsFunc(options, func(o option) bool {
		return strings.HasPrefix(o.Name, key+".")
	})
}

// suggest returns a question for the key that was probably meant: one with the same letters, or
// nearly the same. It is empty if no key is like it.
func suggest(key string) string {
	bare := func(s string) string {
		return strings.ToLower(strings.NewReplacer(".", "", "-", "", "_", "").Replace(s))
	}
	var all []string
	for _, row := range options {
		for _, o := range row.withFile() {
			if row.NoFile {
				continue
			}
			if all = append(all, o.Name); bare(o.Name) == bare(key) {
				return "; did you mean " + o.Name + "?"
			}
		}
	}
	if like := spelling.Nearest(key, slices.Values(all)); like != "" {
		return "; did you mean " + like + "?"
	}
	return ""
}

// suggestVariable returns a question for the environment variable that was probably meant.
func suggestVariable(name string) string {
	all := slices.Clone(clientVariables)
	for _, row := range options {
		for _, o := range row.withFile() {
			all = append(all, o.env())
		}
	}
	// All begin alike, which must not make them like each other.
	prefix := func(s string) string { return strings.TrimPrefix(s, envPrefix) }
	for i := range all {
		all[i] = prefix(all[i])
	}
	if like := spelling.Nearest(prefix(name), slices.Values(all)); like != "" {
		return "; did you mean " + envPrefix + like + "?"
	}
	return ""
}
