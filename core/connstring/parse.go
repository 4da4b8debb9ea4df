package connstring

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mooringdb/mooring/core/address"
)

// Parse reads one connection string. An unknown option, and a value that an option cannot have, are
// ignored with a warning, unless the client could then connect to another server or as another user
// than was meant: that is an error. No error shows a secret.
//
// If an option is given twice, the last value counts, with a warning. Exceptions are
// readPreferenceTags, which keeps all values, tls, whose values must agree, and the proxy options,
// which must not be repeated. A value of authMechanismProperties cannot contain a comma, encoded or
// not.
func Parse(uri string) (Config, error) { return ParseWith(uri, nil) }

// ParseWith reads a connection string and further options, which are those of Source.Options.
func ParseWith(uri string, beside map[string][]string) (Config, error) {
	return Source{URI: uri, Options: beside}.Parse()
}

// Source holds a connection string and the options beside it, such as those of a configuration
// file.
type Source struct {
	URI string

	// Options has the values of options by name, in any case. Values are as in the string, but not
	// URL encoded; several values stand for a repeated option. An option that the string gives, by
	// this name or an alias, overrides the one here.
	Options map[string][]string

	// Username and Password, if not nil, are those of the user, not URL encoded. It is an error if
	// the string has them as well.
	Username, Password *string
}

// Format shows nothing of a source, whatever the verb: any text in it may contain a secret.
func (Source) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "connstring.Source(***)") }

// MarshalText shows nothing of a source either. JSON and structured logs use it.
func (Source) MarshalText() ([]byte, error) { return []byte("***"), nil }

// Parse reads the connection string as the function Parse does. Options that contradict each other
// are an error, also if one is in the string and the other in Options.
func (s Source) Parse() (Config, error) {
	p := &parser{beside: s.Options, user: s}
	if err := p.parse(s.URI); err != nil {
		return Config{}, fmt.Errorf("connection string: %w", err)
	}
	return p.config, nil
}

// parser holds the state of one Parse.
type parser struct {
	config Config
	given  map[string][]string // the values of each option, by its name in lower case
	order  []string            // the names in the order of their first appearance
	as     map[string]string   // the names as they were written
	option string              // the name of the option that is being applied, as it was written
	beside map[string][]string // the options beside the string
	user   Source              // with the user beside the string

	// suspicious is true if there is an @ after the part that was taken for the hosts. Hosts and
	// options may then be a part of a password that is not URL encoded, and no error and no
	// warning may quote them.
	suspicious bool
	// unnamed has the names of options that follow a secret: they may be a part of it that an &
	// cut off.
	unnamed map[string]bool
}

func (p *parser) parse(uri string) error {
	rest, ok := strings.CutPrefix(uri, "mongodb://")
	if !ok {
		if rest, ok = strings.CutPrefix(uri, "mongodb+srv://"); !ok {
			return errors.New("it does not begin with mongodb:// or mongodb+srv://")
		}
		p.config.SRV = true
	}
	hosts, database, options := split(rest)
	p.suspicious = strings.Contains(rest[len(hosts):], "@")
	if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
		if err := p.userinfo(hosts[:i]); err != nil {
			return err
		}
		hosts = hosts[i+1:]
	}
	if err := p.besideUser(); err != nil {
		return err
	}
	if hosts == "" && strings.Contains(database, ".sock") {
		return errors.New("no host: the path of a unix domain socket must be URL encoded")
	}
	if err := p.hosts(hosts); err != nil {
		if p.suspicious {
			return errEncode
		}
		return err
	}
	if strings.Contains(database, "@") {
		return errEncode
	}
	if err := p.database(database); err != nil {
		return err
	}
	if err := p.split(options); err != nil {
		if p.suspicious {
			return errEncode
		}
		return err
	}
	p.add()
	if err := p.apply(); err != nil {
		return err
	}
	if p.config.SRV {
		p.config.given = p.givenBySelf()
	}
	return p.check()
}

// errEncode replaces more exact errors, which would show secrets.
var errEncode = errors.New("user name and password must be URL encoded")

// split cuts a string without its scheme into its three parts. The slash between hosts and options
// may be missing, and options may have slashes.
func split(s string) (hosts, database, options string) {
	i := strings.IndexAny(s, "/?")
	if i < 0 {
		return s, "", ""
	}
	if s[i] == '?' {
		return s[:i], "", s[i+1:]
	}
	database, options, _ = strings.Cut(s[i+1:], "?")
	return s[:i], database, options
}

func (p *parser) userinfo(s string) error {
	p.config.HasCredential = true
	user, password, hasPassword := strings.Cut(s, ":")
	if strings.ContainsAny(user, "@[]#") || strings.ContainsAny(password, ":@[]#") {
		return errEncode
	}
	var userErr, passwordErr error
	p.config.Username, userErr = url.PathUnescape(user)
	p.config.Password, passwordErr = url.PathUnescape(password)
	p.config.HasPassword = hasPassword
	if userErr != nil || passwordErr != nil || !utf8.ValidString(p.config.Username) ||
		!utf8.ValidString(p.config.Password) {
		return errEncode
	}
	return nil
}

// besideUser adds the user that is configured separately from the string. One that the string has
// as well is an error.
func (p *parser) besideUser() error {
	c := &p.config
	if name := p.user.Username; name != nil {
		if c.Username != "" {
			return errors.New("it has a user name, but another one is configured")
		}
		c.HasCredential, c.Username = true, *name
	}
	if password := p.user.Password; password != nil {
		if c.HasPassword {
			return errors.New("it has a password, but another one is configured")
		}
		c.HasCredential, c.HasPassword, c.Password = true, true, *password
	}
	return nil
}

func (p *parser) hosts(s string) error {
	if s == "" {
		return errors.New("no host")
	}
	for text := range strings.SplitSeq(s, ",") {
		host, err := url.PathUnescape(text)
		if err != nil || !utf8.ValidString(host) {
			return fmt.Errorf("host %q is not correctly URL encoded", text)
		}
		addr, err := address.Parse(host)
		if err != nil {
			return err
		}
		p.config.Hosts = append(p.config.Hosts, addr)
	}
	if p.config.SRV {
		return p.srvHost(s)
	}
	return nil
}

func (p *parser) srvHost(s string) error {
	if len(p.config.Hosts) != 1 {
		return errors.New("mongodb+srv needs exactly one host")
	}
	if strings.ContainsAny(s, ":[") || p.config.Hosts[0].Network() != "tcp" {
		return errors.New("mongodb+srv needs a host name without a port")
	}
	p.config.SRVHost, p.config.Hosts = p.config.Hosts[0].Host(), nil
	return nil
}

func (p *parser) database(s string) error {
	name, err := url.PathUnescape(s)
	if err != nil || !utf8.ValidString(name) {
		return fmt.Errorf("database %q is not correctly URL encoded", s)
	}
	if i := strings.IndexAny(name, "/\\ \"$\x00"); i >= 0 {
		return fmt.Errorf("database name must not have a %q in it", name[i])
	}
	p.config.Database = name
	return nil
}

// split collects the options.
func (p *parser) split(options string) error {
	p.given, p.as, p.unnamed = map[string][]string{}, map[string]string{}, map[string]bool{}
	secret := "" // the secret option just before
	for pair := range strings.SplitSeq(options, "&") {
		if pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		key := lower(name)
		row := rows[key]
		if row == nil && secret != "" {
			p.unnamed[key] = true
		}
		if !ok && p.unnamed[key] {
			return fmt.Errorf("an option after %s has no value; perhaps the value of %s is "+
				"not URL encoded", secret, secret)
		}
		if !ok {
			return fmt.Errorf("option %q has no value", name)
		}
		value, err := url.PathUnescape(value)
		if err != nil || !utf8.ValidString(pair) || !utf8.ValidString(value) {
			if p.unnamed[key] {
				name = secret
			}
			return fmt.Errorf("the value of option %q is not correctly URL encoded", name)
		}
		if row != nil {
			secret = ""
			if row.secret {
				secret = row.Name
			}
		}
		if _, ok := p.given[key]; !ok {
			p.order, p.as[key] = append(p.order, key), name
		}
		p.given[key] = append(p.given[key], value)
	}
	return nil
}

// add adds the options beside the string to those of the string, which override them.
func (p *parser) add() {
	own := map[string]bool{}
	for _, key := range p.order {
		own[mainName(key)] = true
	}
	for _, name := range slices.Sorted(maps.Keys(p.beside)) {
		key := lower(name)
		if own[mainName(key)] {
			p.warn(name, "Option '%s' beside the connection string is ignored: the string gives "+
				"it itself",
				name)
			continue
		}
		if _, ok := p.given[key]; !ok {
			p.order, p.as[key] = append(p.order, key), name
		}
		p.given[key] = append(p.given[key], p.beside[name]...)
	}
}

// mainName returns the name, in lower case, of the option that key is a name of.
func mainName(key string) string {
	if row, ok := rows[key]; ok {
		return row.main()
	}
	return key
}

// lower folds ASCII only, as the specification says.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

func (p *parser) has(name string) bool { return len(p.given[lower(name)]) > 0 }

func (p *parser) warn(option, format string, args ...any) {
	p.config.Warnings = append(p.config.Warnings, Warning{option, fmt.Sprintf(format, args...)})
}

// apply applies each option by its row.
func (p *parser) apply() error {
	for _, key := range p.order {
		written, values := p.as[key], p.given[key]
		row, ok := rows[key]
		switch {
		case !ok && (p.suspicious || p.unnamed[key]):
			p.warn("",
				"An unsupported option is ignored; it is not named, since it may be part of a "+
					"password that is not URL encoded")
			continue
		case !ok:
			p.warn(written, "Unsupported option '%s'", written)
			continue
		case row.unsupported != "":
			p.warn(written, "Option '%s' is ignored: %s", written, row.unsupported)
			continue
		case row.replacedBy != "" && p.has(row.replacedBy):
			p.warn(written, "Deprecated key %q present and ignored as found replacement %q value",
				written,
				row.replacedBy)
			continue
		case row.replacedBy != "":
			p.warn(written, "Deprecated key %q has been replaced with %q", written, row.replacedBy)
		}
		if len(values) > 1 && row.repeat == lastCounts {
			p.warn(written, "Option '%s' is given %d times; the last one counts", written,
				len(values))
			values = values[len(values)-1:]
		}
		if len(values) > 1 && row.repeat == refused {
			return fmt.Errorf("option %s is given %d times", row.Name, len(values))
		}
		for _, value := range values {
			if err := p.applyOne(row, written, value); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *parser) applyOne(row *Option, written, value string) error {
	p.option = written
	err := row.apply(p, value)
	_, refuse := errors.AsType[refusal](err)
	switch {
	case err == nil:
		return nil
	case (row.strict || refuse) && p.suspicious:
		return fmt.Errorf("option %s has a value that is not allowed; it is not shown, since it "+
			"may be part of a password that is not URL encoded", row.Name)
	case row.strict || refuse:
		return fmt.Errorf("option %s: %w", row.Name, err)
	case p.suspicious:
		p.warn(written,
			"Unsupported value for %q; it is not shown, since it may be part of a password that "+
				"is not URL encoded", written)
	case row.secret:
		p.warn(written, "Unsupported value for %q: %v", written, err)
	default:
		p.warn(written, "Unsupported value for %q : %q: %v", written, value, err)
	}
	return nil
}
