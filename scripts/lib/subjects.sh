# Checks the subjects of commits: imperative, a capital first, no full stop, at most 72 characters.

# Verbs in their base form that look like another form.
subjects_verbs=' Address Bring Bypass Compress Cross Discuss Dismiss Embed Express Feed Focus Miss Need Pass Press Process Proceed Seed Shed Speed Suppress '

# subject_fault SUBJECT: prints what is wrong with it, or nothing.
subject_fault() {
  local subject=$1 first=${1%%[ :]*}
  if ((${#subject} > 72)); then
    echo "has ${#subject} characters, at most 72"
  elif [[ $subject == *. ]]; then
    echo 'ends with a full stop'
  elif [[ ! $first =~ ^[A-Z][a-z-]+$ ]]; then
    echo 'does not begin with a verb and a capital'
  elif [[ $subjects_verbs == *" $first "* ]]; then
    :
  elif [[ $first =~ ^(A|An|The|This|That|It|No|Each|Every|All|When|What|How|Now|After|Before)$ ]]; then
    echo "begins with \"$first\": begin with a verb, such as Add, Fix or Rename"
  elif [[ $first =~ (s|ed|ing)$ ]]; then
    echo "begins with \"$first\": use the imperative, such as Add and not Adds, Added or Adding"
  fi
}

# Fails if a subject is wrong. Subjects up to the commit that added this file are older than the rule. Without history, as in a
# tarball, it checks none.
commit_subjects() {
  local base subject fault wrong=0
  for subject in 'Adds a test' 'Added a test' 'Adding a test' 'The test is faster' 'add a test' 'Add a test.' "Add $(printf '%072d' 0)"; do
    [[ -n $(subject_fault "$subject") ]] || { echo "the check accepts: $subject"; return 1; }
  done
  for subject in 'Add a test' 'Process frames in order' 'Bring back the list' 'Renew a lost session whatever the status'; do
    [[ -z $(subject_fault "$subject") ]] || { echo "the check refuses: $subject"; return 1; }
  done
  base=$(git log --diff-filter=A --format=%H -1 -- scripts/lib/subjects.sh 2>/dev/null) || true
  if [[ -z $base ]]; then
    echo 'note: this folder has no history; no subject was checked'
    return 0
  fi
  while IFS= read -r subject; do
    fault=$(subject_fault "$subject")
    [[ -z $fault ]] || { echo "\"$subject\" $fault"; wrong=1; }
  done < <(git log --no-merges --format=%s "$base..HEAD")
  return $wrong
}
