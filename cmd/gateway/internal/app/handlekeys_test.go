package app_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/cmd/gateway/internal/app"
	"github.com/mooringdb/mooring/service/seal"
)

// TestHandleKeyIsRemoved follows a handle key through its rotation: the log warns if the key goes
// while tokens of it may live, and only then.
func TestHandleKeyIsRemoved(t *testing.T) {
	const life = time.Hour
	key := func(c string) seal.Key {
		k, err := seal.NewKey([]byte(strings.Repeat(c, 32)))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	one, two := key("1"), key("2")
	for name, row := range map[string]struct {
		steps []([]seal.Key) // each after the time of the one before
		wait  time.Duration  // before the last step
		warns bool
	}{
		"in time":                      {[][]seal.Key{{one, two}, {two, one}, {two}}, life, false},
		"too early":                    {[][]seal.Key{{one, two}, {two, one}, {two}}, life - 1, true},
		"at once":                      {[][]seal.Key{{two}}, 2 * life, true},
		"a key that never sealed":      {[][]seal.Key{{one, two}, {one}}, 0, false},
		"the old key seals once more":  {[][]seal.Key{{two, one}, {one, two}, {two}}, 2 * life, true},
		"the same, and long afterward": {[][]seal.Key{{two, one}, {one, two}, {two, one}, {two}}, life, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			ring, err := seal.NewRing(one)
			if err != nil {
				t.Fatal(err)
			}
			replace := app.ReplaceHandleKeys(ring, life, slog.New(slog.NewTextHandler(&log, nil)))
			for i, keys := range row.steps {
				if i == len(row.steps)-1 {
					time.Sleep(row.wait) //nolint:forbidigo // fake time
				}
				if err := replace(keys...); err != nil {
					t.Fatal(err)
				}
			}
			if got := strings.Contains(log.String(), "a handle key was removed"); got != row.warns {
				t.Errorf("%s: the log has the warning: %t\n%s", name, got, &log)
			}
		})
	}
}
