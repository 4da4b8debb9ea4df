package idempotency_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/idempotency"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/seal"
)

// secret returns a key as text.
func secret(name string) string {
	return base64.StdEncoding.EncodeToString([]byte(name + "-123456789abcdef0123456789abcdef"))
}

// noon is when the clock of a synctest bubble is at noon.
var noon = time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC)

func sleepUntil(at time.Time) {
	time.Sleep(time.Until(at)) //nolint:forbidigo // fake time
}

func parse(t *testing.T, text string) idempotency.Schedule {
	t.Helper()
	s, err := idempotency.ParseSchedule([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var (
	k1 = secret("one") + "\n"
	k2 = "2000-01-01T12:00:00Z " + secret("two") + "\n"
	k3 = "2000-01-01T13:00:00+00:00 " + secret("three") + "\n"
)

func TestParseSchedule(t *testing.T) {
	for _, test := range []struct{ name, text, err string }{
		{"none", "# only this\n\n", ""},
		{"one", k1, ""},
		{"a change", "# the old one\n" + k1 + "\n" + k2, ""},
		{"the old one is gone", k2, ""},
		{"two changes", k1 + k2 + k3, ""},
		{"a new first key, as of handle keys", secret("two") + "\n" + k1, "line 2: a key that replaces another needs the time"},
		{"a second key without a time", k2 + k1, "line 2: a key that replaces another needs the time"},
		{"no time", k1 + "tomorrow " + k1, "line 2: is neither KEY nor TIME KEY"},
		{"a time without a zone", "2000-01-01T12:00:00 " + k1, "line 1: is neither KEY nor TIME KEY"},
		{"three words", "a b c", "line 1: is neither KEY nor TIME KEY"},
		{"in the wrong order", k1 + k3 + k2, "line 3: the key changes less than 31 minutes"},
		{"too soon", k1 + k2 + "2000-01-01T12:30:59Z " + k1, "line 3: the key changes less than 31 minutes"},
		{"no key", "2000-01-01T12:00:00Z hunter2", "line 1: key has 5 bytes"},
		{"no base64", "?", "line 1: key is not base64"},
	} {
		s, err := idempotency.ParseSchedule([]byte(test.text))
		if test.err == "" && err != nil || !strings.Contains(fmt.Sprint(err), test.err) {
			t.Errorf("%s: %v, want %q", test.name, err, test.err)
		}
		if err != nil && (s.Len() != 0 || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: %v, with the error %v", test.name, s, err)
		}
	}
	if parse(t, "").Len() != 0 || parse(t, k1+k2).Len() != 2 {
		t.Error("Len does not say how many keys there are")
	}
	if text := fmt.Sprintf("%v %+v", parse(t, k1), parse(t, k1)); strings.Contains(text, "one-1") {
		t.Errorf("a schedule prints as %s", text)
	}
}

// by returns the id that a call gets at a replica with that schedule, or how long it is refused.
func by(t *testing.T, k *idempotency.Keys) string {
	t.Helper()
	w, err := k.Begin("p", "k", "insert", call.Digest{1})
	if err == nil {
		w.End()
		return w.NewID(0).String()
	}
	r := rpcerr.HTTP(err)
	e := r.Body.GetError()
	if e.GetReason() != "IdempotencyUnavailable" || e.GetRetry() != string(rpcerr.SameRequest) ||
		r.Code != 503 {
		t.Errorf("Begin = %v", e)
	}
	return r.RetryAfter.String()
}

// TestChange: replicas that read a change at any time before it, or are started at any time, have
// the same ids at the same time, and no id of the old key and of the new one within 30 minutes,
// whichever clock is a minute late.
func TestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		id := func(text string) string { return by(t, idempotency.New(c, parse(t, text))) }
		one, two, three := id(k1), id(secret("two")), id(secret("three"))
		if one == two || two == three || len(one) != 24 {
			t.Fatalf("the ids are %s, %s and %s", one, two, three)
		}
		running := idempotency.New(c, parse(t, k1))
		read := func(text string) {
			t.Helper()
			if late, err := running.Replace(parse(t, text)); err != nil || late != 0 {
				t.Errorf("Replace = %v, %v", late, err)
			}
		}
		for _, step := range []struct {
			at   time.Duration // after noon
			read string
			want string
		}{
			{-time.Hour, "", one},
			{-time.Minute, k1 + k2, one},
			{-1, "", one},
			{0, "", "31m0s"},
			{time.Minute, k2, "30m0s"}, // the old key is taken out as soon as it is not used
			{31*time.Minute - 1, "", "1ns"},
			{31 * time.Minute, "", two},
			{40 * time.Minute, k2 + k3, two},
			{time.Hour, "", "31m0s"},
			{91 * time.Minute, "", three},
			{91 * time.Minute, secret("three"), three},
		} {
			sleepUntil(noon.Add(step.at))
			if step.read != "" {
				read(step.read)
			}
			if got := by(t, running); got != step.want {
				t.Errorf("%v after noon: %s, want %s", step.at, got, step.want)
			}
			if got := id(k1 + k2 + k3); step.at > -time.Hour && got != step.want {
				t.Errorf("%v after noon, at a replica that starts: %s, want %s", step.at, got,
					step.want)
			}
		}
	})
}

// TestReplace: a change that has no time, or whose time is long past, is refused. One that comes
// late says so.
func TestReplace(t *testing.T) {
	other := secret("other")
	for name, test := range map[string]struct {
		old, next string
		at        time.Duration // after noon
		err       bool
		late      time.Duration
	}{
		"the same":                     {k1, k1 + "# ", 0, false, 0},
		"another":                      {k1, other, 0, true, 0},
		"a time that is long past":     {k1, k1 + k2, 31 * time.Minute, true, 0},
		"a time that is past":          {k1, k1 + k2, 21 * time.Minute, false, 20 * time.Minute},
		"a minute late":                {k1, k1 + k2, time.Minute, false, 0},
		"later":                        {k1, k1 + k3, 0, false, 0},
		"the change is taken back":     {k1 + k2, k1, 30 * time.Minute, false, 0},
		"it is taken back too late":    {k1 + k2, k1, 31 * time.Minute, true, 0},
		"another in the middle":        {k1 + k2, other, time.Minute, true, 0},
		"another, the old one unknown": {k2, other, time.Minute, true, 0},
		"the change comes sooner":      {k1 + k3, k1 + k2, 62 * time.Minute, true, 0},
		"a little sooner":              {k1 + k3, k1 + "2000-01-01T12:45:00Z " + other, 65 * time.Minute, false, 14 * time.Minute},
		"another from now on":          {k1, "2000-01-01T12:00:00Z " + other, 0, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			sleepUntil(noon.Add(test.at))
			k := idempotency.New(newClient(t), parse(t, test.old))
			before := by(t, k)
			late, err := k.Replace(parse(t, test.next))
			if errors.Is(err, idempotency.ErrSuddenChange) != test.err || late != test.late {
				t.Errorf("%s: %v late, %v", name, late, err)
			}
			if err != nil && by(t, k) != before {
				t.Errorf("%s: %v, but the key has changed", name, err)
			}
		})
	}
}

// TestRefusal says what the log can tell of a change.
func TestRefusal(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		at   time.Duration
		ok   bool
	}{
		"no change": {k1, 0, false},
		"before":    {k1 + k2, -time.Hour, true},
		"in it":     {k2, 31*time.Minute - 1, true},
		"after it":  {k1 + k2, 31 * time.Minute, false},
	} {
		from, until, ok := parse(t, test.text).Refusal(noon.Add(test.at))
		if ok != test.ok || ok && (!from.Equal(noon) || !until.Equal(noon.Add(31*time.Minute))) {
			t.Errorf("%s: from %v until %v, %v", name, from, until, ok)
		}
	}
}

// TestSameIDs: the first handle key as idempotency key gives the ids that calls had when there was
// none.
func TestSameIDs(t *testing.T) {
	key, err := seal.ParseKey("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
	if err != nil {
		t.Fatal(err)
	}
	s, err := idempotency.NewSchedule(key)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := begin(t, idempotency.New(newClient(t), s), "p", "k", "insert", "body")
	if text := got.id.String() + " " +
		got.other.String(); text != "dbb5f43fbdf611039ebae869 e745eac84f1cf07822e93e3d" {
		t.Errorf("the ids are %s: writes that are repeated would be done twice", text)
	}
}
