package extjson

// Dates are computed on days since 1970 in the proleptic Gregorian calendar,
// without package time: that is several times faster than formatting a Time.

const (
	msPerDay = 86_400_000
	minDate  = -62_167_219_200_000 // 0000-01-01T00:00:00.000Z
	maxDate  = 253_402_300_799_999 // 9999-12-31T23:59:59.999Z
)

func floorDiv(n, d int64) (q, r int64) {
	q, r = n/d, n%d
	if r < 0 {
		q, r = q-1, r+d
	}
	return q, r
}

// civil returns the date of a number of days after 1970-01-01. Years are counted from March, in
// eras of 400 years, so that the leap day ends a year. Within an era, it computes as Neri and
// Schneider do in "Euclidean affine functions and their application to calendar algorithms": year
// and day, then month and day, are the halves of one product.
func civil(days int64) (year int64, month, day int) {
	era, d := floorDiv(days+719_468, 146_097)
	quarters := 4*uint32(d) + 3
	century, q := quarters/146_097, quarters%146_097|3
	product := 2_939_745 * uint64(q)
	y, dayOfYear := uint32(product>>32), uint32(product)/2_939_745/4
	n := 2141*dayOfYear + 197_913
	month, day = int(n>>16), int(n&0xFFFF/2141)+1
	year = era*400 + int64(100*century+y)
	if dayOfYear >= 306 { // January or February
		month, year = month-12, year+1
	}
	return year, month, day
}

// daysSince returns the number of days from 1970-01-01 to a date: the inverse of civil.
func daysSince(year int64, month, day int) int64 {
	if month <= 2 {
		year, month = year-1, month+12
	}
	era, y := floorDiv(year, 400)
	d := int64(153*(month-3)+2)/5 + int64(day-1) + 365*y + y/4 - y/100
	return era*146_097 + d - 719_468
}

func daysIn(year int64, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// appendDate writes a date between the years 0 and 9999.
func appendDate(dst []byte, ms int64, fraction bool) []byte {
	days, rest := floorDiv(ms, msPerDay)
	year, month, day := civil(days)
	dst = append(dst, "0000"...)
	put2(dst[len(dst)-4:], uint32(year)/100)
	put2(dst[len(dst)-2:], uint32(year)%100)
	return appendMonth(dst, month, day, rest, fraction)
}

// appendMonth writes what follows the year.
func appendMonth(dst []byte, month, day int, ms int64, fraction bool) []byte {
	at, seconds, milli := len(dst), uint32(ms)/1000, uint32(ms)%1000
	if fraction {
		dst = append(dst, "-00-00T00:00:00.000Z"...)
		put2(dst[at+16:], milli/10)
		dst[at+18] = '0' + byte(milli%10)
	} else {
		dst = append(dst, "-00-00T00:00:00Z"...)
	}
	b := dst[at:]
	put2(b[1:], uint32(month))
	put2(b[4:], uint32(day))
	put2(b[7:], seconds/3600)
	put2(b[10:], seconds/60%60)
	put2(b[13:], seconds%60)
	return dst
}

// moment returns the seconds from 1970 to a date and time in UTC, and whether there is such a day
// and time.
func moment(year, month, day, hour, minute, second int) (seconds int64, ok bool) {
	if month < 1 || month > 12 || hour > 23 || minute > 59 || second > 59 ||
		day < 1 || day > 28 && day > daysIn(int64(year), month) {
		return 0, false
	}
	days := daysSince(int64(year), month, day)
	return days*86_400 + int64(hour*3600+minute*60+second), true
}

// parseDate reads an RFC 3339 date and time. The format's precision ends at milliseconds: further
// digits are dropped. If legacy is set, the zone may lack its colon.
func parseDate(s []byte, legacy bool) (ms int64, ok bool) {
	if len(s) < len("0000-00-00T00:00:00Z") || s[4] != '-' || s[7] != '-' ||
		s[10]|0x20 != 't' || s[13] != ':' || s[16] != ':' {
		return 0, false
	}
	year, ok0 := digits(s[0:4])
	month, ok1 := digits(s[5:7])
	day, ok2 := digits(s[8:10])
	hour, ok3 := digits(s[11:13])
	minute, ok4 := digits(s[14:16])
	second, ok5 := digits(s[17:19])
	if !(ok0 && ok1 && ok2 && ok3 && ok4 && ok5) {
		return 0, false
	}
	seconds, ok := moment(year, month, day, hour, minute, second)
	if !ok {
		return 0, false
	}
	fraction, rest, ok := parseFraction(s[19:])
	if !ok {
		return 0, false
	}
	if legacy && len(rest) == len("+0100") {
		rest = append(append(make([]byte, 0, 6), rest[:3]...), ':', rest[3], rest[4])
	}
	offset, ok := parseZone(rest)
	return (seconds-int64(offset)*60)*1000 + int64(fraction), ok
}

// parseFraction reads ".5" as 500.
func parseFraction(s []byte) (ms int, rest []byte, ok bool) {
	if s[0] != '.' {
		return 0, s, true
	}
	n := 1
	for scale := 100; n < len(s) && s[n]-'0' < 10; n++ {
		ms += int(s[n]-'0') * scale
		scale /= 10
	}
	return ms, s[n:], n > 1
}

// parseZone reads "Z" or "+01:00", in minutes.
func parseZone(s []byte) (minutes int, ok bool) {
	if len(s) == 1 {
		return 0, s[0]|0x20 == 'z'
	}
	if len(s) != 6 || s[0] != '+' && s[0] != '-' || s[3] != ':' {
		return 0, false
	}
	h, ok1 := digits(s[1:3])
	m, ok2 := digits(s[4:6])
	if !ok1 || !ok2 || h > 23 || m > 59 {
		return 0, false
	}
	if s[0] == '-' {
		return -h*60 - m, true
	}
	return h*60 + m, true
}

func digits(s []byte) (n int, ok bool) {
	for _, c := range s {
		if c-'0' > 9 {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}
