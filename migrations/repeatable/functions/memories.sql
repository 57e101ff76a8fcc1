-- Functions that split memories into words for full-text search. PostgreSQL itself splits text only at blanks, and
-- keeps addresses and file names as single words. Here the parts of addresses and file names are indexed too. Text in
-- scripts without blanks between words (Chinese, Japanese, Thai …) or with attached word endings (Korean) is split into
-- pieces of one and two characters.

-- Returns every two adjacent characters of text in the scripts without blanks, and with p_singles also every single
-- character.
create or replace function memory_pieces(p_text text, p_singles boolean) returns text language sql immutable as $$
  select string_agg(pieces, ' ')
  from regexp_matches(p_text, E'[\\u0e00-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff\\u3040-\\u30ff\\u3400-\\u4dbf\\u4e00-\\u9fff\\uac00-\\ud7a3\\uf900-\\ufaff\\uff66-\\uff9f\\U00020000-\\U0003ffff]+', 'g') found(runs),
    lateral (
      select string_agg(substr(runs[1], start, size), ' ') as pieces
      from generate_series(1, length(runs[1])) start, generate_series(1, 2) size
      where start + size - 1 <= length(runs[1]) and (size = 2 or p_singles or length(runs[1]) = 1)) cut
$$;
comment on function memory_pieces is 'Splits text in scripts without blanks into pieces of one and two characters.';

-- Long words are cut after 128 characters, because the time of to_tsvector is quadratic in the length of a word: 90 s
-- for 64 KB of a_a_….
create or replace function memory_words(p_text text, p_singles boolean) returns tsvector language sql immutable as $$
  select to_tsvector('simple', concat_ws(' ', regexp_replace(p_text, E'(\\S{128})', E'\\1 ', 'g'),
                                         regexp_replace(regexp_replace(p_text, '[^[:alnum:]]+', ' ', 'g'), E'(\\S{128})', E'\\1 ', 'g'),
                                         memory_pieces(p_text, p_singles)))
$$;
comment on function memory_words is 'Returns the words by which full-text search finds a memory.';

-- The search matches any word of the query. Each word is quoted, because the query is plain text and must not be read
-- as search operators.
create or replace function memory_words_asked(p_text text) returns tsquery language sql immutable as $$
  select coalesce(string_agg('''' || replace(replace(lexeme, E'\\', E'\\\\'), '''', '''''') || '''', ' | '), '')::tsquery
  from unnest(memory_words(p_text, false))
$$;
comment on function memory_words_asked is 'Converts a text to a full-text query for any of its words.';
