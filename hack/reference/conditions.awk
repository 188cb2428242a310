# Writes the tables of conditions and reasons from the blocks of constants in api/v1alpha1/conditions.go: a heading from
# each block's comment, a row from each constant's. Fails on a constant without a comment.

BEGIN {
  print "<!-- Generated from the Go constants by `make generate`: change those. -->"
  print "# Conditions and reasons"
}

$1 == "//" { sub(/^\t?\/\/ /, ""); doc = doc (doc == "" ? "" : " ") $0; next }

$0 == "const (" { heading = doc }

/^\t(Condition|Reason)[A-Za-z]+ += "/ {
  if (heading != "") {
    title = heading; sub(/\. .*/, "", title); sub(/\.$/, "", title)
    print "\n## " title "\n"
    if (length(heading) > length(title) + 1) print substr(heading, length(title) + 3) "\n"
    print "| " ($1 ~ /^Condition/ ? "condition" : "reason") " | meaning |\n|---|---|"
    heading = ""
  }
  if (sub("^" $1 " (is |says that )?", "", doc) == 0) {
    print FILENAME ": " $1 " needs a comment that starts with its name" >"/dev/stderr"
    exit 1
  }
  value = $3; gsub(/"/, "", value); gsub(/\|/, "\\|", doc)
  if (doc ~ /^[a-z]+ /) doc = toupper(substr(doc, 1, 1)) substr(doc, 2)
  print "| `" value "` | " doc " |"
}

{ doc = "" }
