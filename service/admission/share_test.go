package admission_test

import (
	"testing"

	"github.com/mooringdb/mooring/service/admission"
)

func TestJudge(t *testing.T) {
	limits := admission.Limits{Total: 100}
	for _, test := range []struct {
		name               string
		limits             admission.Limits
		used, mine, demand int64
		last               bool
		want               admission.Verdict
	}{
		{name: "no limit", used: 1 << 40, mine: 1 << 40, demand: 1 << 40},
		{name: "first", limits: limits, demand: 1},
		{name: "all of it, if nothing is held", limits: limits, demand: 100},
		{name: "more than all", limits: limits, demand: 101, want: admission.TooMuchVerdict},
		{name: "alone, up to 80 %", limits: limits, used: 79, mine: 79, demand: 1},
		{
			name: "alone, over 80 %", limits: limits, used: 80, mine: 80, demand: 1,
			want: admission.OwnShareVerdict,
		},
		{name: "new beside one of 80 %", limits: limits, used: 80, demand: 16},
		{
			name: "over the share beside one of 80 %", limits: limits, used: 80, demand: 17,
			want: admission.FullVerdict,
		},
		{
			name: "own part is small", limits: limits, used: 100, mine: 1, demand: 5,
			want: admission.FullVerdict,
		},
		{
			name: "own part is large", limits: limits, used: 100, mine: 90, demand: 5,
			want: admission.OwnShareVerdict,
		},
		{name: "last takes what is left", limits: limits, used: 80, mine: 80, demand: 20, last: true},
		{
			name: "last beyond what is left", limits: limits, used: 80, demand: 21, last: true,
			want: admission.FullVerdict,
		},
		{
			name: "exceeded", limits: limits, used: 130, mine: 10, demand: 1, last: true,
			want: admission.FullVerdict,
		},
		{name: "each", limits: admission.Limits{Each: 3}, used: 50, mine: 2, demand: 1},
		{
			name: "over each", limits: admission.Limits{Each: 3}, used: 50, mine: 3, demand: 1,
			want: admission.OwnShareVerdict,
		},
		{
			name: "as much as each, and others hold all", limits: admission.Limits{Total: 100, Each: 10},
			used: 100, mine: 9, demand: 1, want: admission.FullVerdict,
		},
		{
			name: "as much as all others hold", limits: limits, used: 100, mine: 45, demand: 10,
			want: admission.FullVerdict,
		},
		{name: "a total of one", limits: admission.Limits{Total: 1}, demand: 1},
		{name: "the last unit", limits: admission.Limits{Total: 5}, used: 4, demand: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := admission.Judge(test.limits, test.used, test.mine, test.demand, test.last)
			if got != test.want {
				t.Errorf("Judge(%+v, %d, %d, %d, %t) = %v, want %v", test.limits, test.used,
					test.mine, test.demand, test.last, got, test.want)
			}
		})
	}
}
