package memory

import (
	"testing"
	"testing/synctest"
)

func TestTrims(t *testing.T) {
	for name, row := range map[string]struct {
		trimmed, previous, now usage
		want                   bool
	}{
		"busy": {
			previous: usage{allocated: 100 << 20}, now: usage{allocated: 105 << 20},
		},
		"quiet after a burst": {
			previous: usage{allocated: 100 << 20}, now: usage{allocated: 101 << 20}, want: true,
		},
		"quiet ever since": {
			trimmed:  usage{100 << 20, 50},
			previous: usage{114 << 20, 50}, now: usage{115 << 20, 50},
		},
		"little by little": {
			trimmed:  usage{100 << 20, 50},
			previous: usage{114 << 20, 50}, now: usage{116 << 20, 50}, want: true,
		},
		"connections closed": {
			trimmed:  usage{100 << 20, 4050},
			previous: usage{101 << 20, 4050}, now: usage{102 << 20, 50}, want: true,
		},
		"some connections closed": {
			trimmed:  usage{100 << 20, 4050},
			previous: usage{101 << 20, 4050}, now: usage{102 << 20, 3250},
		},
		"more connections": {
			trimmed:  usage{100 << 20, 50},
			previous: usage{101 << 20, 50}, now: usage{102 << 20, 4050},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := trims(row.trimmed, row.previous, row.now); got != row.want {
				t.Errorf("trims: %t, want %t", got, row.want)
			}
		})
	}
}

// TestTrimmer has a burst, a rest, and connections that close in it.
func TestTrimmer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks, released := make(chan usage), 0
		trimmer := startTrimming(func() usage { return <-looks }, func() { released++ })
		defer trimmer.Stop()
		for _, step := range []struct {
			name string
			now  usage
			want int
		}{
			{"the start", usage{1 << 20, 40}, 0},
			{"the burst", usage{90 << 20, 4000}, 0},
			{"its end", usage{91 << 20, 4000}, 1},
			{"rest", usage{92 << 20, 4000}, 1},
			{"the clients leave", usage{93 << 20, 40}, 2},
			{"rest again", usage{94 << 20, 40}, 2},
		} {
			looks <- step.now
			synctest.Wait()
			if released != step.want {
				t.Errorf("%s: returned %d times, want %d", step.name, released, step.want)
			}
		}
	})
}

func TestRead(t *testing.T) {
	if u := read(); u.allocated == 0 || u.goroutines == 0 {
		t.Errorf("read: %+v", u)
	}
}
