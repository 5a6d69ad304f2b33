# SPDX-License-Identifier: BSD-3-Clause
# Makes pt2p_status.h from status.def.
BEGIN {
	print "/* Statuses of libpt2p. Made from base/report/status.def. */"
	print "#ifndef PT2P_STATUS_H"
	print "#define PT2P_STATUS_H"
	print ""
	print "/** What a call did; see pt2p_errors(7). Zero is success. */"
	print "typedef enum pt2p_status {"
}
/^PT2P_STATUS\(/ {
	line = $0
	sub(/^PT2P_STATUS\(/, "", line)
	name = line
	sub(/,.*/, "", name)
	code = line
	sub(/^[^,]*, */, "", code)
	text = code
	sub(/,.*/, "", code)
	sub(/^[^"]*"/, "", text)
	sub(/".*/, "", text)
	printf "\tPT2P_%s = %d, /**< %s */\n", name, code, text
}
END {
	print "\tPT2P_STATUS_MAX_VALUE = 0x7fffffff /**< no status: makes the type an int everywhere */"
	print "} pt2p_status_t;"
	print ""
	print "#endif"
}
