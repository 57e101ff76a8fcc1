-- Words of memories for full-text search. PostgreSQL splits text at blanks and keeps addresses and file names whole.
-- Here their parts are indexed too, and scripts without blanks (Chinese, Japanese, Thai …) or with word endings
-- (Korean) are split into pieces of one and two characters.

-- Pieces of such scripts: two characters, and with p_singles also one.
create function memory_pieces(p_text text, p_singles boolean) returns text language sql immutable as $$
  select string_agg(pieces, ' ')
  from regexp_matches(p_text, E'[\\u0e00-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff\\u3040-\\u30ff\\u3400-\\u4dbf\\u4e00-\\u9fff\\uac00-\\ud7a3\\uf900-\\ufaff\\uff66-\\uff9f\\U00020000-\\U0003ffff]+', 'g') found(runs),
    lateral (
      select string_agg(substr(runs[1], start, size), ' ') as pieces
      from generate_series(1, length(runs[1])) start, generate_series(1, 2) size
      where start + size - 1 <= length(runs[1]) and (size = 2 or p_singles or length(runs[1]) = 1)) cut
$$;
comment on function memory_pieces is 'Pieces of one and two characters, for scripts without blanks.';

-- Long words are cut, because PostgreSQL's time is quadratic in their length: 90 s for 64 KB of a_a_….
create function memory_words(p_text text, p_singles boolean) returns tsvector language sql immutable as $$
  select to_tsvector('simple', concat_ws(' ', regexp_replace(p_text, E'(\\S{128})', E'\\1 ', 'g'),
                                         regexp_replace(regexp_replace(p_text, '[^[:alnum:]]+', ' ', 'g'), E'(\\S{128})', E'\\1 ', 'g'),
                                         memory_pieces(p_text, p_singles)))
$$;
comment on function memory_words is 'Words by which a memory is found.';

-- Matches any word of the query. Lexemes are quoted, because the query is plain text.
create function memory_words_asked(p_text text) returns tsquery language sql immutable as $$
  select coalesce(string_agg('''' || replace(replace(lexeme, E'\\', E'\\\\'), '''', '''''') || '''', ' | '), '')::tsquery
  from unnest(memory_words(p_text, false))
$$;
comment on function memory_words_asked is 'Converts a query to a search for any of its words.';
