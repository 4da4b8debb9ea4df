package config

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/mooringdb/mooring/service/idempotency"
	"github.com/mooringdb/mooring/service/seal"
)

// none is the value that switches an option off.
const none = "none"

// into makes the parse function of an option from a parser of its type and the field that it
// sets.
func into[T any](
	field func(*Config) *T, parse func(string) (T, error),
) func(*Config, string) error {
	return func(c *Config, text string) error {
		v, err := parse(text)
		if err != nil {
			return err
		}
		*field(c) = v
		return nil
	}
}

func parseText(text string) (string, error) { return text, nil }

func parseServerTexts(text string) (ServerTexts, error) {
	switch s := ServerTexts(text); s {
	case TextsAuto, TextsShow, TextsHide:
		return s, nil
	default:
		return "", fmt.Errorf("%q is not one of auto, show, hide", text)
	}
}

// parseOrNone reads a text, of which none stands for the empty text.
func parseOrNone(text string) (string, error) {
	if text == none {
		return "", nil
	}
	return text, nil
}

func parseURI(c *Config, text string) error {
	if text == "" {
		return errors.New(
			"is required, as in `mooring serve mongodb://127.0.0.1:27017`; or set --uri-file, " +
				"MOORING_URI_FILE, or uriFile in the configuration file")
	}
	c.mongoUser.uri = text
	var err error
	c.MongoDB, err = c.mongoUser.parse(c.mongoOptions)
	return err
}

func parseAddress(text string) (string, error) {
	if text == none {
		return "", nil
	}
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return "", fmt.Errorf(
			"%q is not host:port (such as 127.0.0.1:8080 or :8080) or none", text)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("%q: the port is not a number from 0 to 65535", text)
	}
	return text, nil
}

// parseAdvertise accepts a host, an IP address (without brackets) or host:port. Replica.check
// distinguishes them again.
func parseAdvertise(text string) (string, error) {
	host, port := text, "0"
	if _, err := netip.ParseAddr(text); err != nil && strings.Contains(text, ":") {
		if host, port, err = net.SplitHostPort(text); err != nil || host == "" {
			return "", fmt.Errorf("%q is neither a host nor host:port", text)
		}
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("%q: the port is not a number from 0 to 65535", text)
	}
	if text != "" && isWildcard(host) {
		return "", fmt.Errorf("%q stands for all addresses: name the one that other replicas "+
			"can reach", text)
	}
	return text, nil
}

func parsePeers(text string) ([]string, error) {
	var peers []string
	for _, peer := range strings.FieldsFunc(text,
		func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		host, port, err := net.SplitHostPort(peer)
		if err != nil || host == "" {
			return nil, fmt.Errorf("%q is not host:port", peer)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("%q: the port is not a number from 1 to 65535", peer)
		}
		peers = append(peers, peer)
	}
	return peers, nil
}

// parseLines returns the lines of text that are not empty, unchanged.
func parseLines(text string) ([]string, error) {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSuffix(line, "\r"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// parseLimit reads a number of at least 1; none means 0.
func parseLimit(text string) (int, error) {
	if text == none {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a number of at least 1 or none", text)
	}
	return int(n), nil
}

// auto is the value of a limit that follows from other options. Auto stands for it until the limit
// is computed.
const (
	auto = "auto"
	Auto = -1
)

// parseAutoLimit reads what parseLimit reads, and auto.
func parseAutoLimit(text string) (int, error) {
	if text == auto {
		return Auto, nil
	}
	return parseLimit(text)
}

// parseBudget reads a size; auto means 0.
func parseBudget(text string) (int64, error) {
	if text == auto {
		return 0, nil
	}
	return sizeWithin(16<<20, 1<<40)(text)
}

// parsePercent reads a percentage: 80% is 0.8.
func parsePercent(text string) (float64, error) {
	digits, ok := strings.CutSuffix(text, "%")
	n, err := strconv.ParseUint(digits, 10, 8)
	if !ok || err != nil || n < 1 || n > 100 {
		return 0, fmt.Errorf("%q is not a percentage from 1%% to 100%%", text)
	}
	return float64(n) / 100, nil
}

// parseShare reads a percentage from 0% to 100%: 0.5% is 0.005. auto means nil.
func parseShare(text string) (*float64, error) {
	if text == auto {
		return nil, nil
	}
	digits, ok := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(digits, 64)
	if !ok || err != nil || !(n >= 0 && n <= 100) {
		return nil, fmt.Errorf("%q is not a percentage from 0%% to 100%%, such as 0.5%%, "+
			"or auto", text)
	}
	n /= 100
	return &n, nil
}

func parseBool(text string) (bool, error) {
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", text)
}

func durationWithin(least, most time.Duration) func(string) (time.Duration, error) {
	return func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration such as 500ms, 20s or 10m", text)
		}
		if d < least || d > most {
			return 0, fmt.Errorf("%s is not between %s and %s", text, least, most)
		}
		return d, nil
	}
}

// sizeUnits lists the suffixes of sizes; a number without one is in bytes.
var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"", 1}}

func sizeWithin(least, most int64) func(string) (int64, error) {
	return func(text string) (int64, error) {
		for _, u := range sizeUnits {
			digits, ok := strings.CutSuffix(text, u.suffix)
			if !ok {
				continue
			}
			n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 62)
			if err != nil {
				break
			}
			if n > uint64(most/u.bytes) || int64(n)*u.bytes < least {
				return 0, fmt.Errorf("%s is not between %s and %s", text, formatSize(least),
					formatSize(most))
			}
			return int64(n) * u.bytes, nil
		}
		return 0, fmt.Errorf("%q is not a size such as 65536, 512KiB or 64MiB", text)
	}
}

func formatSize(n int64) string {
	for _, u := range sizeUnits {
		if n%u.bytes == 0 && n/u.bytes < 1<<10 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}

type logLevel = slog.Level

func parseLevel(text string) (logLevel, error) {
	switch text {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("%q is not one of debug, info, warn, error", text)
}

func parseFormat(text string) (LogFormat, error) {
	switch f := LogFormat(text); f {
	case LogText, LogJSON:
		return f, nil
	}
	return "", fmt.Errorf("%q is neither text nor json", text)
}

// parseKeys reads keys in the format of a keys file, one per line; a single line may also have
// commas between them.
func parseKeys(text string) ([]seal.Key, error) { return seal.ParseKeys(keyLines(text)) }

// parseSchedule reads the idempotency key, and the key that takes its place, in the same format.
func parseSchedule(text string) (idempotency.Schedule, error) {
	return idempotency.ParseSchedule(keyLines(text))
}

func keyLines(text string) []byte {
	if !strings.Contains(text, "\n") {
		text = strings.ReplaceAll(text, ",", "\n")
	}
	return []byte(text)
}

var (
	errNoKey    = errors.New("the file has no key")
	errEmptyKey = errors.New("has no key: write at least one, or remove the option")
)

// ParseHandleKeys reads the text of a file of keys as Load does. A text without keys is an error
// here: a gateway that reads the file again has keys already.
func ParseHandleKeys(text []byte) ([]seal.Key, error) {
	keys, err := parseKeys(strings.TrimSpace(string(text)))
	if err == nil && len(keys) == 0 {
		err = errNoKey
	}
	return keys, err
}

// ParseIdempotencyKey reads the text of the file of the idempotency key as Load does. A text
// without a key is an error.
func ParseIdempotencyKey(text []byte) (idempotency.Schedule, error) {
	s, err := parseSchedule(strings.TrimSpace(string(text)))
	if err == nil && s.Len() == 0 {
		err = errNoKey
	}
	return s, err
}

// SumHandleKeys returns a fingerprint of the text of a file of keys. Space around it makes no
// difference.
func SumHandleKeys(text []byte) [sha256.Size]byte { return sha256.Sum256(bytes.TrimSpace(text)) }

// parseComponents reads components of the driver, or none.
func parseComponents(text string) ([]string, error) {
	if text == none {
		return nil, nil
	}
	known := []string{"command", "connection", "serverSelection", "topology"}
	names, _ := parseList(text)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%q is not one of %s", name, strings.Join(known, ", "))
		}
	}
	return names, nil
}
