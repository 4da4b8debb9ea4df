package idempotency

import (
	"errors"
	"strings"
	"time"

	"github.com/mooringdb/mooring/service/seal"
)

// Pause is how long calls with a key are refused when the gateway's own key changes. The ids of a
// call come from that key, so a call that began with the old key must be forgotten before the same
// call could run with the new one. The minute more is for replicas whose clocks differ.
const Pause = Life + time.Minute

// Schedule says from which of the gateway's own keys the ids of calls come, and when. It is a
// value that depends on nothing else: replicas that have the same schedule decide the same at the
// same time, whenever each has read it, and after a restart, too. The zero Schedule has no key.
type Schedule struct{ periods []period }

// period begins when the key of the one before ends. Its own key is in force Pause later.
type period struct {
	begin time.Time // zero: the key has always been in force
	ids   seal.Digester
}

// inForce returns when the key of the period is in force.
func (p period) inForce() time.Time {
	if p.begin.IsZero() {
		return p.begin
	}
	return p.begin.Add(Pause)
}

// NewSchedule returns the schedule of a key that does not change.
func NewSchedule(key seal.Key) (Schedule, error) {
	return Schedule{}.with(time.Time{}, key)
}

func (s Schedule) with(begin time.Time, key seal.Key) (Schedule, error) {
	ids, err := seal.NewDigester(key)
	if err != nil {
		return Schedule{}, err
	}
	return Schedule{append(s.periods[:len(s.periods):len(s.periods)], period{begin, ids})}, nil
}

// The errors of ParseSchedule do not quote the text, which is secret.
var (
	errNoTime = errors.New("a key that replaces another needs the time of the change " +
		"before it, such as 2026-01-31T12:00:00Z KEY: see docs/operations.md")
	errTime  = errors.New("is neither KEY nor TIME KEY, with a time such as 2026-01-31T12:00:00Z")
	errOrder = errors.New("the key changes less than 31 minutes after the key before it does")
)

// ParseSchedule reads the keys of a file, one per line: KEY, which may only come first, or TIME
// KEY for a key that takes the place of the one before at that time (RFC 3339). Empty lines and
// lines that start with # are skipped.
func ParseSchedule(text []byte) (Schedule, error) {
	var s Schedule
	err := seal.Lines(text, func(line string) (err error) {
		words := strings.Fields(line)
		n := len(s.periods)
		var begin time.Time
		switch {
		case len(words) == 1 && n > 0:
			return errNoTime
		case len(words) == 2:
			if begin, err = time.Parse(time.RFC3339, words[0]); err != nil || begin.IsZero() {
				return errTime
			}
			if n > 0 && begin.Before(s.periods[n-1].inForce()) {
				return errOrder
			}
		case len(words) > 2:
			return errTime
		}
		key, err := seal.ParseKey(words[len(words)-1])
		if err != nil {
			return err
		}
		s, err = s.with(begin, key)
		return err
	})
	if err != nil {
		return Schedule{}, err
	}
	return s, nil
}

// Len returns how many keys the schedule has.
func (s Schedule) Len() int { return len(s.periods) }

// Refusal returns from when until when calls with a key are refused: now, or the next time. If
// there is no key from before, they are also refused until then. ok is false if they are not.
func (s Schedule) Refusal(now time.Time) (from, until time.Time, ok bool) {
	for _, p := range s.periods {
		if until := p.inForce(); now.Before(until) {
			return p.begin, until, true
		}
	}
	return time.Time{}, time.Time{}, false
}

// at returns the key that is in force, or how long calls with a key are still refused.
func (s Schedule) at(now time.Time) (ids seal.Digester, wait time.Duration) {
	ids, known := s.last(now)
	if from, until, ok := s.Refusal(now); ok && !(known && now.Before(from)) {
		return seal.Digester{}, until.Sub(now)
	}
	return ids, 0
}

// until returns until when a key was used that is not in force at that time, or the time.
func (s Schedule) until(now time.Time) time.Time {
	if from, _, ok := s.Refusal(now); ok && from.Before(now) {
		return from
	}
	return now
}

// last returns the key that is in force, or was until calls with a key were refused. ok is false
// if the schedule does not have that key.
func (s Schedule) last(now time.Time) (ids seal.Digester, ok bool) {
	for _, p := range s.periods {
		if !now.Before(p.inForce()) {
			ids, ok = p.ids, true
		}
	}
	return ids, ok
}
